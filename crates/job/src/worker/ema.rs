//! The average of the weights (`[ema]`) at a start: that of the checkpoint, or the weights that the run starts from.

use super::state::{self, Weights};
use base::error::Result;
use checkpoint::Loaded;
use collectives::ProcessGroup;
use train::models::{Model, StateEntry};
use train::training::{Ema, Position, WeightAverage};

/// The checkpoint's average, if this run continues it. Otherwise a line about it, if necessary.
///
/// # Errors
/// Exit code 74: a tensor is missing or has another shape.
pub fn saved(
    ema: Option<Ema>,
    loaded: &Loaded,
    entries: &[StateEntry],
    position: &mut Position,
) -> Result<(Option<Weights>, Option<&'static str>)> {
    match (ema, loaded.ema.is_empty()) {
        (None, none) => {
            position.ema = None;
            let left_out = "the average of the weights is left out: the spec has no `ema.decay`";
            Ok((None, (!none).then_some(left_out)))
        }
        (Some(_), true) => {
            // Its first update.
            position.ema = Some(1);
            Ok((None, Some("the average of the weights starts from those of the checkpoint, which has none")))
        }
        (Some(_), false) => {
            let average = state::weights(entries, &loaded.ema).map_err(|e| state::unfit(loaded, e))?;
            position.ema.get_or_insert(0);
            Ok((Some(average), None))
        }
    }
}

/// The average at the start, equal on all ranks, as `model` already is; `saved` is rank 0's.
pub fn start(
    ema: Option<Ema>,
    model: &dyn Model,
    saved: Option<Weights>,
    position: &Position,
    group: &dyn ProcessGroup,
) -> Result<Option<WeightAverage>> {
    let Some(ema) = ema else { return Ok(None) };
    let mut average = WeightAverage::new(model, ema)?;
    if position.ema.is_some() {
        for index in 0..model.entries().len() {
            average.values_mut().edit(index, |_, own| {
                if let Some(Some(values)) = saved.as_ref().map(|saved| &saved[index]) {
                    own.copy_from_slice(values);
                }
                if group.world_size() > 1 {
                    group.broadcast(own.into(), 0)?;
                }
                Ok(())
            })?;
        }
    }
    Ok(Some(average))
}
