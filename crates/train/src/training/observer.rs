//! The events of the training loop. Rank 0's observer writes metrics, progress and checkpoints; the others' write a log.

use super::digests::StepDigests;
use super::{BatchAlgebra, Divergence, Position, StepAnatomy, Sums, Tally, Updater, WeightAverage};
use crate::models::Model;
use base::error::Result;
use data::Dataset;
use ddp::HookState;
use record::Digest;
use std::time::Duration;

/// How long rank 0 may generate texts after an evaluation; the other ranks wait so much longer than `distributed.timeout`.
pub const TEXT_TIME: Duration = Duration::from_secs(2);

/// Results of one optimizer step, over all ranks.
#[derive(Clone, Debug)]
pub struct StepReport {
    /// Sums over all ranks; only `samples` is set in a step that the loss scale skips.
    pub sums: Sums,
    /// This rank's part.
    pub local: Sums,
    /// Base learning rate of the step, after the schedule.
    pub lr: f64,
    /// Global L2 norm of the averaged gradients before clipping; not finite only in a skipped step.
    pub grad_norm: f64,
    /// Wall-clock seconds of the step; on a device, where steps overlap, those since the previous one was done.
    pub seconds: f64,
    /// Seconds in which this rank waited for data.
    pub data_wait: f64,
    /// In steps that are logged.
    pub anatomy: Option<StepAnatomy>,
    /// In steps that have them, on rank 0.
    pub digests: StepDigests,
}

/// Receives the events of one rank's training, in order, on the training thread.
pub trait Observer {
    /// Called before the first step of an epoch, or of its rest in a resumed run, whose sizes are `algebra`.
    fn epoch_begins(&mut self, position: &Position, algebra: &BatchAlgebra);
    /// Called after each optimizer step; `position` already counts it.
    fn step(&mut self, position: &Position, report: &StepReport);
    /// Rank 0 only, after an evaluation of `dataset` and before [`Observer::epoch`]: `model` has the weights that were evaluated.
    /// It may generate texts for `TEXT_TIME`.
    fn evaluated(
        &mut self,
        _position: &Position,
        _model: &dyn Model,
        _dataset: &dyn Dataset,
        _tally: Option<&Tally>,
    ) {
    }
    /// Called after the epoch's evaluation; `position.epoch` is the epoch that ends, or that `max_steps` cuts short.
    fn epoch(
        &mut self,
        position: &Position,
        train: &Sums,
        val: Option<&Sums>,
        training: Duration,
        data_wait: Duration,
        lr: f64,
    );
    /// Rank 0 only: copies what a checkpoint needs and returns; writing may continue on another thread. `hook` is the
    /// state of all ranks' communication hooks, if they have one.
    fn save(
        &mut self,
        position: &Position,
        tensors: RunTensors<'_>,
        hook: Option<HookState>,
        seconds: f64,
    ) -> Result<()>;
    /// All ranks have the same state after step number `step`, by their check; `digest` is that of the state.
    fn agreed(&mut self, _step: u64, _digest: Digest) {}
    /// They have not, and the run is about to end.
    fn diverged(&mut self, _position: &Position, _found: &Divergence) {}
}

/// What a checkpoint has tensors of.
#[derive(Clone, Copy)]
pub struct RunTensors<'a> {
    /// Parameters and buffers.
    pub model: &'a dyn Model,
    /// The optimizer's state.
    pub updater: &'a Updater,
    /// With `[ema]`.
    pub average: Option<&'a WeightAverage>,
}
