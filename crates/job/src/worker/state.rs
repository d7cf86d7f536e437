//! Restores a checkpoint into a trainer, on any number of ranks; [`super::snapshot`] is the opposite.

use super::exchange::share_json;
use super::hook::HookLayout;
use super::optimizer::{self, Trained};
use super::parts::RankParts;
use super::snapshot::batches_tracked;
use base::display;
use base::error::{Error, ErrorKind, Result};
use checkpoint::{CheckpointConfig, Loaded, TensorData, TensorMap};
use collectives::ProcessGroup;
use data::Fingerprint;
use ddp::device::ComputeDevice;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use spec::Values;
use std::collections::HashSet;
use std::sync::Arc;
use train::models::{Model, StateEntry, TensorFacts};
use train::training::{Batching, Position, Updater, share_model};

/// No run reaches this value; numbers up to it can be added and multiplied by small ones without overflow.
const LARGEST: u64 = 1 << 53;

/// The part of `state.json` that only this program reads.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SavedState {
    pub position: Position,
    /// The device of the rank that saved.
    pub device: String,
    /// The spec's value.
    pub batch_size: usize,
    /// The spec's value.
    pub accumulate: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comm_hook: Option<HookLayout>,
    #[serde(default, skip_serializing_if = "Trained::is_all")]
    pub trained: Trained,
    /// Fingerprint of the data set that the run was trained on.
    pub data: Fingerprint,
}

/// Constant data for all checkpoints of a run.
pub struct RunFacts {
    pub name: String,
    pub seed: u64,
    pub spec_hash: String,
    /// `[optimizer]` of the spec.
    pub optimizer: Map<String, Value>,
    /// The keys of the communication hook.
    pub hook_keys: Values,
    /// Whether the metrics are those of the targets' kind.
    pub standard: bool,
    /// The spec's, not that of a resumed run.
    pub batching: Batching,
    pub device: ComputeDevice,
    pub trained: Trained,
    pub data: Fingerprint,
    /// The text of `usage.json`.
    pub usage: Arc<str>,
}

impl RunFacts {
    pub fn new(
        parts: &RankParts<'_>,
        device: ComputeDevice,
        trained: Trained,
        data: Fingerprint,
        usage: Arc<str>,
    ) -> Self {
        Self {
            name: parts.name.to_owned(),
            seed: parts.seed,
            spec_hash: parts.group.plan_hash.to_owned(),
            optimizer: parts.spec().optimizer(),
            hook_keys: parts.spec().hook_keys(),
            standard: parts.task.own().is_none(),
            batching: parts.batching(parts.world.world_size),
            device,
            trained,
            data,
            usage,
        }
    }
}

impl SavedState {
    pub fn new(made: &RunFacts, position: &Position, comm_hook: Option<HookLayout>) -> Self {
        Self {
            position: position.clone(),
            device: made.device.to_string(),
            batch_size: made.batching.batch_size,
            accumulate: made.batching.accumulate,
            comm_hook,
            trained: made.trained.clone(),
            data: made.data.clone(),
        }
    }

    /// Whether steps have samples, and all numbers are possible in a run of which `world` ranks saved.
    pub(super) fn is_valid(&self, world: usize) -> bool {
        let Position { epoch, start, micro, step_in_epoch, step, micro_total, samples, .. } = self.position;
        let counts = [epoch, start, micro, step_in_epoch, step, micro_total, samples];
        let can_be = |n: usize| n > 0 && n as u64 <= LARGEST;
        let batching_can_be = |of: &Batching| [of.global_batch(), of.kept, of.unit].into_iter().all(can_be);
        counts.iter().all(|n| *n <= LARGEST)
            && [self.batch_size, self.accumulate].into_iter().all(can_be)
            && [self.position.batching, self.position.first].iter().all(batching_can_be)
            && self.position.batching.world == world
    }
}

/// The position of a checkpoint.
///
/// # Errors
/// Exit code 74: the position is invalid.
pub fn saved(loaded: &Loaded) -> Result<SavedState> {
    let saved: SavedState = serde_json::from_value(loaded.state.extra.clone())
        .map_err(|e| unfit(loaded, Error::checkpoint(format!("its state can't be decoded: {e}"))))?;
    if saved.is_valid(loaded.state.world) {
        return Ok(saved);
    }
    let forged = "its state has steps without samples or ranks, or impossibly large numbers";
    Err(unfit(loaded, Error::checkpoint(forged)))
}

/// Restores a checkpoint's state into a model and an optimizer.
///
/// # Errors
/// Exit code 74: a tensor is missing or has another shape, because the spec's model or optimizer is not the
/// checkpoint's. 69: the device failed.
pub fn restore(
    parts: &RankParts<'_>,
    loaded: &Loaded,
    saved: &SavedState,
    device: ComputeDevice,
    model: &mut dyn Model,
    updater: &mut Updater,
) -> Result<()> {
    restore_model(parts.checkpoint, loaded, saved, device, &loaded.model, model)?;
    optimizer::fits(parts.spec(), loaded, &saved.trained, model.entries(), updater)
        .and_then(|()| put_optimizer(model.entries(), updater, &loaded.optimizer, saved))
        .map_err(|e| unfit(loaded, e))
}

/// Restores only the model, with the checkpoint's own or averaged `weights`.
///
/// # Errors
/// As [`restore`].
pub fn restore_model(
    config: &CheckpointConfig,
    loaded: &Loaded,
    saved: &SavedState,
    device: ComputeDevice,
    weights: &TensorMap,
    model: &mut dyn Model,
) -> Result<()> {
    put_model(model, weights).map_err(|e| unfit(loaded, e))?;
    let sent_to = config.map_location.as_ref().and_then(|map| map.get(&saved.device));
    if let Some(target) = sent_to.filter(|target| **target != device.to_string()) {
        let from = &saved.device;
        return Err(Error::unavailable(format!(
            "checkpoint.map_location sends tensors of `{from}` to `{target}`, and rank 0 computes on `{device}`"
        ))
        .hint("without an entry, each rank loads to its own device"));
    }
    Ok(())
}

/// Whether a file has these tensors: before a model of that size is allocated.
pub(super) fn has_tensors(file: &TensorMap, tensors: &[TensorFacts]) -> Result<()> {
    tensors.iter().try_for_each(|tensor| find(file, &tensor.name, &tensor.shape).map(drop))
}

pub(super) fn unfit(loaded: &Loaded, e: Error) -> Error {
    // A failing device is not a problem of the checkpoint.
    if e.kind != ErrorKind::Io {
        return e;
    }
    let message = format!("checkpoint {} does not fit the spec: {}", loaded.path.display(), e.message);
    let hint = "the model differs from the one that was saved; `--resume never --out DIR` starts a new run";
    Error::checkpoint(message).hint(e.hint.unwrap_or_else(|| hint.to_owned()))
}

/// Values of a model's tensors by number, in the module's layout; `None` where there are none.
pub(super) type Weights = Vec<Option<Vec<f32>>>;

/// The values of all tensors in a file, which has no others: a part of a larger model is another model.
pub(super) fn weights(entries: &[StateEntry], file: &TensorMap) -> Result<Weights> {
    has_only(entries, file)?;
    entries.iter().map(|entry| Ok(Some(value_of(entry, file)?))).collect()
}

/// The value of a tensor in a file, in the module's layout.
fn value_of(entry: &StateEntry, file: &TensorMap) -> Result<Vec<f32>> {
    Ok(entry.of_dict(&find(file, &entry.name, &entry.shape)?.as_f32()))
}

/// Whether a file has all tensors of a model, and no others.
fn has_only(entries: &[StateEntry], file: &TensorMap) -> Result<()> {
    entries.iter().try_for_each(|entry| find(file, &entry.name, &entry.shape).map(drop))?;
    let names =
        entries.iter().flat_map(StateEntry::names).flat_map(|e| [Some(e.name.clone()), batches_tracked(e)]);
    let names: HashSet<String> = names.flatten().collect();
    let mut others = file.iter().filter(|tensor| !names.contains(&tensor.name));
    match (others.next(), others.count()) {
        (None, _) => Ok(()),
        (Some(first), more) => {
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            let what = format!("the spec's model lacks its tensor `{}`{more}", first.name);
            Err(Error::checkpoint(what))
        }
    }
}

/// Sets all tensors of a model to those of a file, one at a time.
pub(super) fn put_model(model: &mut dyn Model, file: &TensorMap) -> Result<()> {
    let entries = model.entries().to_vec();
    has_only(&entries, file)?;
    let mut done = Ok(());
    model.edit(&|_| true, &mut |index, own| match value_of(&entries[index], file) {
        Ok(value) => own.copy_from_slice(&value),
        Err(e) => done = Err(e),
    })?;
    done
}

fn put_optimizer(
    entries: &[StateEntry],
    updater: &mut Updater,
    file: &TensorMap,
    saved: &SavedState,
) -> Result<()> {
    for (index, entry) in entries.iter().enumerate().filter(|(_, e)| e.trainable()) {
        updater.since_mut()[index] = saved.trained.since(entry, saved.position.updates());
        if saved.trained.thaws(entry) {
            continue;
        }
        let slots = updater.slots(index);
        let shape = |slot| updater.slot_shape(index, slot, &entry.module_shape());
        let shapes: Vec<Vec<usize>> = (0..slots.len()).map(shape).collect();
        updater.state_mut().edit(index, |slot, own| {
            let whole = own.len() == entry.numel();
            let shape = if whole { &entry.shape } else { &shapes[slot] };
            let values = find(file, &format!("{}.{}", slots[slot], entry.name), shape)?.as_f32();
            if whole {
                own.copy_from_slice(&entry.of_dict(&values));
            } else {
                own.copy_from_slice(&values);
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn find<'a>(file: &'a TensorMap, name: &str, shape: &[usize]) -> Result<&'a TensorData> {
    let tensor = file.get(name).ok_or_else(|| Error::checkpoint(format!("it has no tensor `{name}`")))?;
    if tensor.shape != shape {
        let found = &tensor.shape;
        return Err(Error::checkpoint(format!(
            "tensor `{name}` has shape {}, the spec needs {}",
            display::shape(found),
            display::shape(shape)
        )));
    }
    Ok(tensor)
}

/// Copies rank 0's state to all ranks: parameters, buffers, optimizer state, position. Returns the position, if any.
pub fn share(
    model: &mut dyn Model,
    updater: &mut Updater,
    position: Option<Position>,
    group: &dyn ProcessGroup,
) -> Result<Option<Position>> {
    if group.world_size() == 1 {
        return Ok(position);
    }
    let shared = position.map(|position| (position, updater.since().to_vec()));
    let position = share_json(shared, group)?.map(|(position, since): (Position, Vec<u64>)| {
        updater.since_mut().copy_from_slice(&since);
        position
    });
    share_model(model, group)?;
    if position.is_some() {
        for index in 0..model.entries().len() {
            updater.state_mut().edit(index, |_, array| Ok(group.broadcast(array.into(), 0)?))?;
        }
    }
    Ok(position)
}

#[cfg(test)]
mod tests {
    use super::*;
    use train::models::{Layout, Role};

    fn entry(name: &str, role: Role) -> StateEntry {
        let aliases = Vec::new();
        StateEntry { name: name.to_owned(), shape: vec![2], role, layout: Layout::Same, aliases }
    }

    #[test]
    fn a_part_of_a_larger_model_does_not_fit() {
        let tied = StateEntry {
            aliases: vec![entry("head", Role::Parameter)],
            ..entry("embedding", Role::Parameter)
        };
        let entries = [tied, entry("norm.running_var", Role::Statistic), entry("last", Role::Parameter)];
        let names = ["embedding", "head", "norm.running_var", "norm.num_batches_tracked", "last"];
        let file = names.map(|name| TensorData::from_f32(name.to_owned(), vec![2], &[1.0, 2.0]).unwrap());
        let file = TensorMap::from_tensors(file).unwrap();
        assert_eq!(weights(&entries, &file).unwrap(), vec![Some(vec![1.0, 2.0]); 3]);
        let error = weights(&entries[..2], &file).unwrap_err();
        assert_eq!(
            (error.kind, error.message),
            (ErrorKind::Io, "the spec's model lacks its tensor `last`".into())
        );
        let error = weights(&entries[1..2], &file).unwrap_err();
        assert!(
            error.message.starts_with("the spec's model lacks its tensor `embedding` (and 2 more)"),
            "{error}"
        );
    }

    #[test]
    fn a_state_whose_steps_have_no_samples_is_refused() {
        let saved = |batch_size, batching| SavedState {
            position: Position::new(batching),
            device: "cpu".to_owned(),
            batch_size,
            accumulate: 1,
            comm_hook: None,
            trained: Trained::default(),
            data: Fingerprint { train: 96, val: None, content: String::new() },
        };
        assert!(saved(8, Batching::new(2, 8, 1)).is_valid(2));
        let mut far = saved(8, Batching::new(2, 8, 1));
        far.position.step = u64::MAX;
        let mut first = saved(8, Batching::new(2, 8, 1));
        first.position.first.accumulate = 0;
        let forged = [
            saved(0, Batching::new(2, 8, 1)),
            saved(8, Batching::default()),
            saved(8, Batching::new(3, 8, 1)),
            saved(8, Batching::new(2, 0, 1)),
            saved(8, Batching::new(0, 8, 1)),
            saved(8, Batching { kept: 1 << 63, ..Batching::new(2, 8, 1) }),
            saved(8, Batching { unit: 1 << 63, ..Batching::new(2, 8, 1) }),
            saved(8, Batching { batch_size: 1 << 63, ..Batching::new(2, 8, 1) }),
            saved(1 << 63, Batching::new(2, 8, 1)),
            far,
            first,
        ];
        for saved in forged {
            assert!(!saved.is_valid(2), "{:?}", saved.position);
        }
    }
}
