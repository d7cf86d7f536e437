//! What a training starts from: its data, and its state, fresh or from a checkpoint. The parts are
//! built in the order in which they need each other.

use super::compute::compute;
use super::data::{facts_of, open_data, say_lacking};
use super::exchange::share_json;
use super::messages::warn;
use super::resume::Resumed;
use super::{RankJob, RankParts};
use super::{ema, fit, norms, optimizer, resume, same_data, state};
use base::error::Result;
use checkpoint::{CheckpointStore, Score};
use collectives::{ProcessGroup, Wait};
use data::{DataFacts, Fingerprint, Splits};
use ddp::HookState;
use record::history::{Parent, checkpoints};
use train::models::Model;
use train::training::{Position, TrainSettings, Updater, WeightAverage};

/// The data of a run, the same on all ranks.
pub(super) struct RunData {
    pub splits: Splits,
    pub facts: DataFacts,
    pub fingerprint: Fingerprint,
}

impl RunData {
    pub fn open(job: &RankJob<'_>, parts: &RankParts<'_>) -> Result<Self> {
        let splits = open_data(&parts.data, None, &*job.group, job.local_rank)?;
        let (facts, fingerprint) = (facts_of(&splits), Fingerprint::new(&splits));
        if job.group.rank() == 0 {
            say_lacking(&splits);
            parts.memory_warning(&facts).iter().for_each(|why| warn(&format!("`model`: {why}")));
        }
        // One rank's disk may be much slower than another's.
        job.group.barrier(Wait::WhilePeersLive)?;
        same_data::check_data_sets(&fingerprint, &*job.group)?;
        Ok(Self { splits, facts, fingerprint })
    }
}

/// What a training starts from: fresh, or loaded by rank 0. Equal on all ranks, but for what only
/// rank 0 has.
pub(super) struct InitialState {
    pub model: Box<dyn Model>,
    pub updater: Updater,
    pub average: Option<WeightAverage>,
    pub position: Position,
    pub best: Option<Score>,
    /// On rank 0.
    pub parent: Option<Parent>,
    /// On rank 0.
    pub hooks: Option<HookState>,
}

impl InitialState {
    /// Checks too that data, model and batches fit together.
    pub fn new(
        job: &RankJob<'_>,
        parts: &RankParts<'_>,
        settings: &TrainSettings,
        data: &RunData,
    ) -> Result<Self> {
        let (group, train) = (&*job.group, &*data.splits.train);
        parts.ranks_by(&data.facts)?;
        let on = compute(job.device, parts.precision)?;
        let mut model = parts.model.source.build(&data.facts, parts.seed, &on)?;
        fit::model(parts, train, &*model)?;
        optimizer::freeze(parts.optimizer, &mut *model)?;
        let mut updater = Updater::new(parts.optimizer, parts.train.clip_norm, model.entries(), &on.device);
        let Resumed { position, parent, hooks, average } = match group.rank() {
            0 => resume::resume(job, parts, settings, data, &mut *model, &mut updater)?,
            _ => Resumed::default(),
        };
        let position = state::share(&mut *model, &mut updater, position, group)?
            .unwrap_or_else(|| Position::new(parts.batching(group.world_size())));
        let average = ema::start(parts.ema, &*model, average, &position, group)?;
        let best = best_so_far(job, settings, parent.as_ref(), group)?;
        fit::batches(parts.data.loader.drop_last, &position, train.len())?;
        norms::check(parts, &data.facts, train, &position, &mut *model)?;
        Ok(Self { model, updater, average, position, best, parent, hooks })
    }
}

/// How good the best checkpoint is that a run continues from or behind; the same on all ranks.
fn best_so_far(
    job: &RankJob<'_>,
    settings: &TrainSettings,
    parent: Option<&Parent>,
    group: &dyn ProcessGroup,
) -> Result<Option<Score>> {
    let Some(by) = settings.best else { return Ok(None) };
    let own = parent.filter(|from| from.is_within(job.out_dir));
    let store = || CheckpointStore::read_only(checkpoints(job.out_dir));
    let best = own.map_or(Ok(None), |from| store().best_score(by, from.step))?;
    share_json(best, group)
}
