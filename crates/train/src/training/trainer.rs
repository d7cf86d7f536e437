//! The training loop. One optimizer step consists of `accumulate` forward and backward passes (gradients are averaged
//! over the ranks during the last backward pass), one exchange of the step's sums and requests, and the update. Every
//! decision about what follows (stop, save, end) depends on that exchange, so all ranks decide alike.

use super::digests::StepDigests;
use super::gradient_sync::GradientSync;
use super::in_flight::DeviceQueue;
use super::phases::PhaseTracker;
use super::replicas::{ReplicaCheck, take_flip};
use super::saves::Saves;
use super::state::TrainState;
use super::step_requests::StepRequests;
use super::{Observer, Position, StepAnatomy, StepReport, Sums, TrainSettings, Updater, WeightAverage};
use super::{buffers, digests};
use crate::models::Model;
use base::error::Result;
use checkpoint::{Every, OnPreempt, Score};
use collectives::{Phase, ProcessGroup, StepPhase};
use data::Splits;
use ddp::HookState;
use std::sync::Arc;
use std::time::Duration;

/// The components of a trainer.
pub struct TrainerParts<'a> {
    /// The process group of all ranks.
    pub group: Arc<dyn ProcessGroup>,
    /// Training data and, if there are any, validation data.
    pub splits: Splits,
    /// Model and updater hold the initial state (fresh or loaded), equal on all ranks.
    pub model: Box<dyn Model>,
    /// The optimizer and its state.
    pub updater: Updater,
    /// With `[ema]`; equal on all ranks too.
    pub average: Option<WeightAverage>,
    /// Counts in the units of this run: its batching defines micro-batches and steps.
    pub position: Position,
    /// How good the best checkpoint so far is; equal on all ranks.
    pub best: Option<Score>,
    /// Polled once per step.
    pub stop: &'a dyn Fn() -> bool,
    /// Receives the events of this rank.
    pub observer: &'a mut dyn Observer,
}

/// The training loop of one rank.
pub struct Trainer<'a> {
    pub(super) settings: TrainSettings,
    pub(super) group: Arc<dyn ProcessGroup>,
    pub(super) splits: Splits,
    pub(super) state: TrainState,
    pub(super) gradients: GradientSync,
    /// The step that a device computes; always empty in host memory.
    pub(super) queue: DeviceQueue,
    pub(super) phases: PhaseTracker,
    pub(super) saves: Saves,
    replicas: ReplicaCheck,
    /// Time waited for data in this epoch.
    pub(super) data_wait: Duration,
    stop: &'a dyn Fn() -> bool,
    pub(super) observer: &'a mut dyn Observer,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrainingEnd {
    /// All epochs or steps are done, or the run ended early by its own rules.
    Done,
    /// Stopped on request, after a save unless `checkpoint.on_preempt` is `exit`.
    Stopped,
}

impl<'a> Trainer<'a> {
    /// Prepares the loop to continue at the position of `parts`; [`Trainer::run`] starts it.
    pub fn new(settings: TrainSettings, parts: TrainerParts<'a>) -> Result<Self> {
        let TrainerParts { group, splits, model, updater, average, mut position, best, stop, observer } =
            parts;
        let gradients = GradientSync::new(&settings, &*model, &mut position, group.clone())?;
        Ok(Self {
            gradients,
            queue: DeviceQueue::new(),
            phases: PhaseTracker::new(group.clone()),
            saves: Saves::new(&settings, group.rank(), &position, best),
            replicas: ReplicaCheck::new(settings.check_replicas, settings.train.buffers, position.step),
            data_wait: Duration::ZERO,
            state: TrainState { model, updater, average, position },
            settings,
            group,
            splits,
            stop,
            observer,
        })
    }

    /// Restores the communication hooks' state from a checkpoint, which only rank 0 has. Returns the reason if it does
    /// not fit this run. Call on all ranks, before `run`.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>> {
        self.gradients.restore_hook(saved)
    }

    /// Trains until the run is complete or a stop is requested.
    pub fn run(&mut self) -> Result<TrainingEnd> {
        let ended = self.run_epochs();
        self.phases.end();
        ended
    }

    fn run_epochs(&mut self) -> Result<TrainingEnd> {
        while !self.settings.is_over(&self.state.position) {
            if self.epoch()? == TrainingEnd::Stopped {
                return Ok(TrainingEnd::Stopped);
            }
        }
        // A run that is to continue later needs its checkpoint then.
        if self.settings.save_every != Every::Never || self.settings.is_paused(&self.state.position) {
            self.save()?;
        }
        self.report_phase(Phase::Finish);
        Ok(TrainingEnd::Done)
    }

    /// Reports this rank's phase to the group, for messages about failures.
    pub(super) fn report_phase(&mut self, phase: Phase) {
        let step = self.state.position.step + u64::from(!self.queue.is_empty());
        self.phases.enter(StepPhase { step, phase });
        if take_flip() {
            self.state.flip_a_bit();
        }
    }

    /// The position after the step in flight, without its sums.
    pub(super) fn ahead(&self) -> Position {
        self.queue.ahead(&self.state.position)
    }

    /// Why the run ended before its epochs and steps were done; `None` if it did not.
    pub fn ended_early(&self) -> Option<String> {
        self.settings.ends_early(&self.state.position)
    }

    /// The trained model.
    pub fn into_model(self) -> Box<dyn Model> {
        self.state.model
    }

    /// Whether `train.max_steps` optimizer steps are done.
    pub(super) fn reached_max_steps(&self) -> bool {
        self.settings.train.max_steps.is_some_and(|max| self.ahead().step >= max)
    }

    /// Samples of an epoch.
    pub(super) fn samples(&self) -> usize {
        self.splits.train.len()
    }

    /// This rank's requests.
    pub(super) fn requests(&self) -> StepRequests {
        StepRequests { stop: (self.stop)(), save: self.saves.is_due_by_time() }
    }

    /// What follows the update of step number `step`, before its sums are reported. `update` is the
    /// number of the update, if the step had one.
    pub(super) fn after_update(
        &mut self,
        step: u64,
        update: Option<u64>,
        digests: &mut StepDigests,
    ) -> Result<()> {
        if let Some(order) = self.gradients.reducer.learn_order()? {
            self.state.position.bucket_order = Some(order);
        }
        buffers::after_step(self.settings.train.buffers, &mut *self.state.model, &*self.group)?;
        if let Some(update) = update {
            self.state.follow_weights(update)?;
        }
        digests::add_state(digests, &self.state)?;
        if self.replicas.is_due(step) { self.check_replicas(step) } else { Ok(()) }
    }

    fn check_replicas(&mut self, step: u64) -> Result<()> {
        self.replicas.run(step, &self.state, &*self.group, self.observer)
    }

    /// Counts and reports a step whose sums are known.
    pub(super) fn done(&mut self, micro_batches: u64, report: &StepReport) {
        let position = &mut self.state.position;
        position.advance(micro_batches, &report.sums);
        self.data_wait += Duration::from_secs_f64(report.data_wait);
        self.phases.leave();
        self.observer.step(position, report);
        if self.settings.logs(position.step) {
            position.window = Sums::default();
        }
    }

    /// Exchanges the ranks' times if step number `step` is logged. It follows the exchange of the sums, where no rank has
    /// to wait long for the others.
    pub(super) fn exchange_times(&mut self, step: u64) -> Result<Option<StepAnatomy>> {
        self.phases.count_step();
        if !self.settings.logs(step) {
            return Ok(None);
        }
        let averaging = self.gradients.reducer.take_averaging_time();
        Ok(Some(self.phases.exchange_times(averaging)?))
    }

    /// The learning rate of the step after `position`.
    pub(super) fn lr(&self, position: &Position) -> f64 {
        self.settings.rate(self.settings.lr, position, self.samples())
    }

    /// The learning rates of the step after `position`, by rule of the optimizer.
    pub(super) fn rates(&self, position: &Position) -> Vec<f64> {
        self.state.updater.rates(|base| self.settings.rate(base, position, self.samples()))
    }

    /// Carries out the ranks' requests between two steps, in an epoch of `micro_batches`.
    pub(super) fn act_on(&mut self, flags: StepRequests, micro_batches: u64) -> Result<TrainingEnd> {
        if flags.stop {
            if self.settings.on_preempt == OnPreempt::Save {
                self.save()?;
            }
            self.report_phase(Phase::Finish);
            return Ok(TrainingEnd::Stopped);
        }
        // With a step in flight the model is ahead of the position; a step that is to be saved has landed before.
        let step = self.state.position.step;
        if self.queue.is_empty() && (flags.save || self.saves.is_due_after(step)) {
            match self.state.position.micro >= micro_batches || self.reached_max_steps() {
                true => self.saves.wait_for_evaluation(),
                false => self.save()?,
            }
        }
        Ok(TrainingEnd::Done)
    }

    /// Passes a checkpoint to rank 0's observer, with the state of all ranks' hooks; the other ranks continue at once.
    /// Does nothing if the last save is of the same state.
    pub(super) fn save(&mut self) -> Result<()> {
        self.report_phase(Phase::Save);
        let done = self.pass_checkpoint();
        self.phases.leave();
        done
    }

    fn pass_checkpoint(&mut self) -> Result<()> {
        if !self.saves.begin(&self.state.position) {
            return Ok(());
        }
        if self.replicas.is_due_before_save() {
            self.check_replicas(self.state.position.step)?;
        }
        let hook = self.gradients.reducer.hook_state()?;
        if self.group.rank() == 0 {
            let (position, tensors) = (&self.state.position, self.state.tensors());
            self.observer.save(position, tensors, hook, self.saves.seconds())?;
        }
        Ok(())
    }
}
