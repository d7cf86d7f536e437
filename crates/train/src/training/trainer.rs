//! The training loop. One optimizer step consists of `accumulate` forward and backward passes (gradients are averaged
//! over the ranks during the last backward pass), one exchange of the step's sums and flags, and the update. Every
//! decision about what follows (stop, save, end) depends on that exchange, so all ranks decide alike.

use super::anatomy::{Part, StepClock};
use super::digests::StepDigests;
use super::evaluate::{Evaluated, evaluate};
use super::feed::Feed;
use super::flags::Flags;
use super::in_flight::InFlight;
use super::replicas::Replicas;
use super::saves::Saves;
use super::spans::Spans;
use super::{Anatomy, Clock, Observer, Position, Settings, Sums, TEXT_TIME, Updater, WeightAverage, buffers};
use crate::models::Model;
use base::error::{Error, Result};
use checkpoint::Every;
use checkpoint::Score;
use collectives::{Phase, ProcessGroup, StepPhase, Wait};
use data::{Dataset, LoaderOptions, Splits};
use ddp::device::{Precision, is_host};
use ddp::{BucketLayout, HookState, Reducer, TapLadder};
use sampler::{DistributedSampler, Prefix};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The components of a trainer.
pub struct Parts<'a> {
    pub group: Arc<dyn ProcessGroup>,
    pub splits: Splits,
    /// Model and updater hold the initial state (fresh or loaded), equal on all ranks.
    pub model: Box<dyn Model>,
    pub updater: Updater,
    /// With `[ema]`; equal on all ranks too.
    pub average: Option<WeightAverage>,
    /// Counts in the units of this run: its batching defines micro-batches and steps.
    pub position: Position,
    /// How good the best checkpoint so far is; equal on all ranks.
    pub best: Option<Score>,
    /// Polled once per step.
    pub stop: &'a dyn Fn() -> bool,
    pub observer: &'a mut dyn Observer,
}

/// Everything that one rank needs to train.
pub struct Trainer<'a> {
    pub(super) settings: Settings,
    pub(super) group: Arc<dyn ProcessGroup>,
    splits: Splits,
    pub(super) model: Box<dyn Model>,
    pub(super) updater: Updater,
    pub(super) average: Option<WeightAverage>,
    pub(super) reducer: Reducer,
    /// How many times as large as in the checkpoint the gradients are that the hooks get.
    hook_factor: f64,
    pub(super) ladder: TapLadder,
    /// After the last step whose sums are known.
    pub(super) position: Position,
    /// The model's tensors are in host memory.
    pub(super) host: bool,
    /// A step enqueued on the device.
    pub(super) in_flight: Option<InFlight>,
    /// When the sums of the last step arrived.
    pub(super) last_landed: Instant,
    stop: &'a dyn Fn() -> bool,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) saves: Saves,
    pub(super) replicas: Replicas,
    pub(super) data_wait: Duration,
    pub(super) spans: Spans,
    pub(super) step_clock: StepClock,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// Stopped on request, after a save unless `checkpoint.on_preempt` is `exit`.
    Stopped,
}

/// Results of one optimizer step, over all ranks.
#[derive(Clone, Debug)]
pub struct StepReport {
    pub sums: Sums,
    /// This rank's part.
    pub local: Sums,
    pub lr: f64,
    pub grad_norm: f64,
    pub seconds: f64,
    pub data_wait: f64,
    /// In steps that are logged.
    pub anatomy: Option<Anatomy>,
    /// In steps that have them, on rank 0.
    pub digests: StepDigests,
}

impl<'a> Trainer<'a> {
    pub fn new(settings: Settings, parts: Parts<'a>) -> Result<Self> {
        let Parts { group, splits, model, updater, average, mut position, best, stop, observer } = parts;
        let sizes: Vec<Option<usize>> =
            model.entries().iter().map(|e| e.trainable().then(|| e.numel())).collect();
        let caps = settings.reducer.bucket_caps();
        let layout = match &position.bucket_order {
            Some(order) => BucketLayout::in_order(&sizes, order, caps),
            None => BucketLayout::new(&sizes, caps),
        };
        let names = model.entries().iter().map(|e| e.name.clone()).collect();
        let hook = settings.comm_hook.as_ref();
        let learn = position.bucket_order.is_none();
        let reducer = Reducer::new(layout, model.device(), learn, names, group.clone(), hook)
            .map_err(|e| Error::internal(format!("cannot start the communication thread: {e}")))?;
        let hook_factor = position.continue_scaled(settings.precision == Precision::F16);
        let (saves, replicas) = (Saves::new(&position, best), Replicas::from(position.step));
        Ok(Self {
            ladder: TapLadder::new(sizes.len(), model.device()),
            host: is_host(model.device()),
            in_flight: None,
            last_landed: Instant::now(),
            settings,
            group,
            splits,
            model,
            updater,
            average,
            reducer,
            hook_factor,
            position,
            stop,
            observer,
            saves,
            replicas,
            data_wait: Duration::ZERO,
            spans: Spans::default(),
            step_clock: StepClock::default(),
        })
    }

    /// Restores the communication hooks' state from a checkpoint, which only rank 0 has. Returns the reason if it does
    /// not fit this run. Call on all ranks, before `run`.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>> {
        let left_out = self.reducer.restore_hook(saved)?;
        if self.position.step > 0 && self.hook_factor != 1.0 {
            self.reducer.rescale(self.hook_factor as f32);
        }
        Ok(left_out)
    }

    /// Trains until the run is complete or a stop is requested.
    pub fn run(&mut self) -> Result<Ended> {
        let ended = self.run_epochs();
        self.spans.end();
        ended
    }

    fn run_epochs(&mut self) -> Result<Ended> {
        while !self.settings.is_over(&self.position) {
            if self.epoch()? == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
        }
        // A run that is to continue later needs its checkpoint then.
        if self.settings.save_every != Every::Never || self.settings.is_paused(&self.position) {
            self.save()?;
        }
        self.report_phase(Phase::Finish);
        Ok(Ended::Done)
    }

    /// Reports this rank's phase to the group, for messages about failures.
    pub(super) fn report_phase(&mut self, phase: Phase) {
        let step = self.position.step + u64::from(self.in_flight.is_some());
        self.spans.phase(phase);
        self.step_clock.reach(phase.into());
        self.group.note(StepPhase { step, phase });
        self.flip_if_asked();
    }

    /// What follows (events, the beginning of an epoch) belongs to no phase.
    pub(super) fn end_phase(&self) {
        self.spans.end_of_phase();
        self.step_clock.reach(Part::Other);
    }

    /// The position after the step in flight, without its sums.
    pub(super) fn ahead(&self) -> Position {
        let mut position = self.position.clone();
        if let Some(step) = &self.in_flight {
            position.count(step.micro_batches);
        }
        position
    }

    /// Why the run ended before its epochs and steps were done; `None` if it did not.
    pub fn ended_early(&self) -> Option<String> {
        self.settings.ends_early(&self.position)
    }

    /// The trained model.
    pub fn into_model(self) -> Box<dyn Model> {
        self.model
    }

    /// Whether `train.max_steps` optimizer steps are done.
    pub(super) fn reached_max_steps(&self) -> bool {
        self.settings.train.max_steps.is_some_and(|max| self.ahead().step >= max)
    }

    fn epoch(&mut self) -> Result<Ended> {
        let begun = Instant::now();
        self.end_phase();
        self.spans.epoch(self.group.rank(), self.position.epoch);
        let mut feed = self.feed()?;
        let rest = self.position.rest_algebra(self.splits.train.len(), self.settings.loader.drop_last);
        self.observer.epoch_begins(&self.position, &rest);
        let micro_batches = rest.micro_batches();
        while self.ahead().micro < micro_batches && !self.reached_max_steps() {
            let flags = self.step(&mut feed, micro_batches)?;
            if self.act_on(flags, micro_batches)? == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
        }
        drop(feed);
        self.spans.end_of_steps();
        if self.in_flight.is_some() {
            let flags = self.land()?;
            if self.act_on(flags, micro_batches)? == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
        }
        self.finish_epoch(self.position.micro >= micro_batches, begun.elapsed())?;
        Ok(Ended::Done)
    }

    /// This rank's batches of the epoch, from the position on.
    fn feed(&self) -> Result<Feed> {
        let sampler = DistributedSampler {
            len: self.splits.train.len(),
            world: self.group.world_size(),
            rank: self.group.rank(),
            start: self.position.start as usize,
            shuffle: self.settings.loader.shuffle,
            drop_last: self.settings.loader.drop_last,
            seed: self.settings.seed,
        };
        let rest = self.position.rest_algebra(sampler.len, sampler.drop_last);
        let order = sampler.epoch(self.position.epoch);
        Feed::new(
            self.splits.train.clone(),
            Prefix { order, len: rest.taken_per_rank(sampler.world) },
            LoaderOptions {
                epoch: self.position.epoch,
                start_batch: self.position.micro as usize,
                ..self.settings.loader.options(self.position.batching.batch_size, self.settings.seed)
            },
            self.model.device(),
            self.host,
        )
    }

    /// This rank's requests.
    pub(super) fn requests(&self) -> Flags {
        Flags { stop: (self.stop)(), save: self.timed_save_due() }
    }

    /// Counts and reports a step whose sums are known.
    pub(super) fn done(&mut self, micro_batches: u64, report: &StepReport) {
        self.position.advance(micro_batches, &report.sums);
        self.data_wait += Duration::from_secs_f64(report.data_wait);
        self.end_phase();
        self.observer.step(&self.position, report);
        if self.settings.logs(self.position.step) {
            self.position.window = Sums::default();
        }
    }

    /// Exchanges the ranks' times if step number `step` is logged. It follows the exchange of the sums, where no rank has
    /// to wait long for the others.
    pub(super) fn exchange_times(&mut self, step: u64) -> Result<Option<Anatomy>> {
        self.step_clock.step();
        if !self.settings.logs(step) {
            return Ok(None);
        }
        let averaging = self.reducer.take_averaging_time();
        Ok(Some(self.step_clock.exchange(averaging, &*self.group)?))
    }

    /// Learning rate of the step after `position`.
    pub(super) fn lr(&self, position: &Position) -> f64 {
        self.rate(self.settings.lr, position)
    }

    /// The same from another base rate. The schedule ends with the run.
    pub(super) fn rate(&self, base: f64, position: &Position) -> f64 {
        let Clock { done, steps_per_epoch, total } = self.clock(position);
        let schedule = &self.settings.schedule;
        let base = schedule.base_lr(base, position.plateau.as_ref());
        schedule.lr(base, done, steps_per_epoch, total)
    }

    pub(super) fn clock(&self, position: &Position) -> Clock {
        let (samples, drop_last) = (self.splits.train.len(), self.settings.loader.drop_last);
        position.clock(samples, drop_last, self.settings.epochs, self.settings.train.max_steps)
    }

    /// Evaluates if due, and closes the epoch. One that is not `whole` was cut short by `max_steps`.
    fn finish_epoch(&mut self, whole: bool, training: Duration) -> Result<()> {
        let every = self.settings.train.eval_every;
        let epoch = self.position.epoch;
        let last = epoch + 1 == self.settings.epochs || self.reached_max_steps();
        let regular = every > 0 && (epoch + 1).is_multiple_of(every);
        let due = regular || every > 0 && last;
        let mut val = None;
        if let Some(dataset) = self.splits.val.clone().filter(|d| due && !d.is_empty()) {
            val = Some(self.evaluate(&dataset)?);
        }
        let train = self.position.epoch_sums.clone();
        // Of a run that goes on with more epochs nothing may depend on where it ended before: the evaluation of a last epoch that has one only for
        // that does not count, and an epoch that `max_steps` cut short is evaluated again at its end.
        let counted = val.as_ref().filter(|_| regular);
        if whole {
            self.schedule_sees(&train, counted);
        }
        let lr = self.lr(&self.position);
        self.observer.epoch(&self.position, &train, val.as_ref(), training, self.data_wait, lr);
        self.data_wait = Duration::ZERO;
        // If this step was saved before its evaluation, it is saved again with the result.
        let again = self.saves.last == Some((self.position.step, false));
        if let Some(rule) = self.settings.early_stop.filter(|_| whole) {
            self.position.early_stop = rule.after(self.position.early_stop.take(), &train, counted);
        }
        let best = self.saves.is_best(self.settings.best, &train, val.as_ref());
        self.position.close(whole, val);
        let due =
            matches!(self.settings.save_every, Every::Epochs(n) if self.position.epoch.is_multiple_of(n));
        let due = std::mem::take(&mut self.saves.waiting) || again || (whole && due) || best;
        if due { self.save() } else { Ok(()) }
    }

    /// Evaluates a split over all ranks, with the average of the weights if there is one.
    pub fn evaluate(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        self.report_phase(Phase::Evaluate);
        self.swap_average()?;
        let sums = self.evaluate_model(dataset);
        self.swap_average()?;
        self.end_phase();
        sums
    }

    fn evaluate_model(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        buffers::before_evaluation(self.settings.train.buffers, &mut *self.model, &*self.group)?;
        let options = self.settings.loader.options(self.position.batching.batch_size, self.settings.seed);
        let details = self.settings.details;
        let task = &*self.settings.task;
        let Evaluated { sums, tally } =
            evaluate(&*self.model, task, dataset, options, &*self.group, details)?;
        let has_texts = details.has_texts(&dataset.input(), &dataset.target());
        if has_texts {
            self.report_phase(Phase::Generate);
        }
        if self.group.rank() == 0 {
            self.observer.evaluated(&self.position, &*self.model, &**dataset, tally.as_ref());
        }
        if has_texts {
            self.group.barrier(Wait::Longer(TEXT_TIME))?;
        }
        Ok(sums)
    }
}
