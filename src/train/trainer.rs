//! The training loop. One optimizer step consists of `accumulate` forward and backward passes (gradients are averaged
//! over the ranks during the last backward pass), one exchange of the step's sums and flags, and the update. Every
//! decision about what follows (stop, save, end) depends on that exchange, so all ranks decide alike.

use super::device_sums::BatchSums;
use super::evaluate::evaluate;
use super::feed::{DeviceBatch, Feed};
use super::flags::Flags;
use super::in_flight::InFlight;
use super::mixing::mixed;
use super::passes::{Passes, no_backward, scaled};
use super::saves::Saves;
use super::{Clock, Observer, Position, Settings, Sums, Updater, WeightAverage, buffers};
use crate::checkpoint::Every;
use crate::comm::{Phase, Place, ProcessGroup};
use crate::data::{Dataset, DistributedSampler, LoaderOptions, Prefix, Splits};
use crate::ddp::{BucketLayout, HookState, OwnBackward, Reducer, TapLadder};
use crate::device::{Precision, drawn, is_host};
use crate::error::{Error, Result};
use crate::models::Model;
use crate::tasks::{Gradients, StepContext};
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
    ladder: TapLadder,
    /// After the last step whose sums are known.
    pub(super) position: Position,
    /// The model's tensors are in host memory.
    host: bool,
    /// A step enqueued on the device.
    pub(super) in_flight: Option<InFlight>,
    /// When the sums of the last step arrived.
    pub(super) last_landed: Instant,
    stop: &'a dyn Fn() -> bool,
    pub(super) observer: &'a mut dyn Observer,
    pub(super) saves: Saves,
    pub(super) data_wait: Duration,
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
}

impl<'a> Trainer<'a> {
    pub fn new(settings: Settings, parts: Parts<'a>) -> Result<Self> {
        let Parts { group, splits, model, updater, average, mut position, stop, observer } = parts;
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
        let scaled = settings.precision == Precision::F16;
        position.loss_scale = scaled.then(|| position.loss_scale.unwrap_or_default());
        let saves = Saves::new(&position);
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
            position,
            stop,
            observer,
            saves,
            data_wait: Duration::ZERO,
        })
    }

    /// Restores the communication hooks' state from a checkpoint, which only rank 0 has. Returns the reason if it does
    /// not fit this run. Call on all ranks, before `run`.
    pub fn restore_hook(&mut self, saved: Option<HookState>) -> Result<Option<String>> {
        Ok(self.reducer.restore_hook(saved)?)
    }

    /// Trains until the run is complete or a stop is requested.
    pub fn run(&mut self) -> Result<Ended> {
        while !self.settings.is_over(&self.position) {
            if self.epoch()? == Ended::Stopped {
                return Ok(Ended::Stopped);
            }
        }
        if self.settings.save_every != Every::Never {
            self.save()?;
        }
        self.report_phase(Phase::Finish);
        Ok(Ended::Done)
    }

    /// Reports this rank's phase to the group, for messages about failures.
    pub(super) fn report_phase(&self, phase: Phase) {
        let step = self.position.step + u64::from(self.in_flight.is_some());
        self.group.note(Place { step, phase });
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

    /// Takes one optimizer step. Returns its requests, or on a device those of the step before.
    fn step(&mut self, feed: &mut Feed, micro_batches: u64) -> Result<Flags> {
        let begun = Instant::now();
        let ahead = self.ahead();
        let left = (micro_batches - ahead.micro) as usize;
        let count = self.position.batching.accumulate.min(left);
        let mut sums = Vec::with_capacity(count);
        let (mut full, mut weight) = (None, 0.0);
        let mut waited = Duration::ZERO;
        for micro in 0..count {
            self.report_phase(Phase::Data);
            let asked = Instant::now();
            let batch =
                feed.next().unwrap_or_else(|| Err(Error::internal("the loader ran out of batches")))?;
            waited += asked.elapsed();
            tracing::trace!(epoch = self.position.epoch, indices = ?batch.host.indices, "batch");
            let number = ahead.micro_total + micro as u64;
            // Each sample of a step has the same weight. The last micro-batch of an epoch may be short, on all ranks alike.
            let share = batch.host.len as f64 / *full.get_or_insert(batch.host.len) as f64;
            weight += share;
            sums.push(self.micro_batch(feed, batch, number, share, micro, micro + 1 == count)?);
        }
        self.report_phase(Phase::Sync);
        self.reducer.finish()?;
        let passes = Passes { sums, count, weight, begun, waited };
        if self.host { self.update(passes) } else { self.launch(passes) }
    }

    /// This rank's requests.
    pub(super) fn requests(&self) -> Flags {
        Flags { stop: (self.stop)(), save: self.timed_save_due() }
    }

    /// Counts and reports a step whose sums are known.
    pub(super) fn done(&mut self, micro_batches: u64, report: &StepReport) {
        self.position.advance(micro_batches, &report.sums);
        self.data_wait += Duration::from_secs_f64(report.data_wait);
        self.observer.step(&self.position, report);
        if self.position.step.is_multiple_of(self.settings.log_every.max(1)) {
            self.position.window = Sums::default();
        }
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

    /// Forward and backward pass of one micro-batch: number `number` of the run and `micro` of its step, whose gradient
    /// is weighted by `share`. Returns its sums on this rank.
    fn micro_batch(
        &mut self,
        feed: &mut Feed,
        batch: DeviceBatch,
        number: u64,
        share: f64,
        micro: usize,
        last: bool,
    ) -> Result<BatchSums> {
        self.report_phase(Phase::Forward);
        let (batch, lighter) = mixed(self.settings.train.mixing(), batch, self.settings.seed, number);
        let DeviceBatch { batch: given, host: batch } = batch;
        let target = given.target.clone();
        // Dropout draws from a stream keyed by (seed, rank, micro-batch), so a resumed run draws the same values.
        drawn(self.model.device(), stream_key(self.settings.seed, self.group.rank() as u64, number), || ());
        self.reducer.begin(micro, last);
        let context = StepContext::new(true, &*self.group).mixed(lighter);
        let task = &*self.settings.task;
        let factor = share * self.position.loss_scale.map_or(1.0, |scale| scale.scale);
        let own =
            task.runs_backward().then(|| Arc::new(OwnBackward::new(self.reducer.sink(), factor as f32)));
        let taps = match &own {
            Some(own) => self.ladder.taps(own.clone()),
            None => self.ladder.taps(self.reducer.sink()),
        };
        let (mut given, mut output) = (Some(given), None);
        self.model.run(Arc::new(taps), &mut |net| {
            output = given.take().map(|batch| task.step(net, batch, &context));
        });
        let output = output.expect("`run` calls the pass")?;
        let loss = output.loss.clone();
        let ranks = match output.gradients {
            Gradients::Averaged => 1.0,
            Gradients::Added => self.group.world_size() as f64,
        };
        let sums = BatchSums::new(output.inner(), &target, &batch, self.host)?;
        feed.recycle(batch);
        self.report_phase(Phase::Backward);
        match own {
            Some(own) if own.ran() => {}
            Some(_) => return Err(no_backward()),
            None => drop(scaled(loss, ranks * factor).backward()),
        }
        if !last {
            self.reducer.end_micro();
        }
        Ok(sums)
    }

    /// Evaluates if due, and closes the epoch. One that is not `whole` was cut short by `max_steps`.
    fn finish_epoch(&mut self, whole: bool, training: Duration) -> Result<()> {
        let every = self.settings.train.eval_every;
        let epoch = self.position.epoch;
        let last = epoch + 1 == self.settings.epochs || self.reached_max_steps();
        let due = every > 0 && ((epoch + 1).is_multiple_of(every) || last);
        let mut val = None;
        if let Some(dataset) = self.splits.val.clone().filter(|d| due && !d.is_empty()) {
            val = Some(self.evaluate(&dataset)?);
        }
        let train = self.position.epoch_sums.clone();
        // An epoch that `max_steps` cut short is evaluated again at its end.
        if whole {
            self.schedule_sees(&train, val.as_ref());
        }
        let lr = self.lr(&self.position);
        self.observer.epoch(&self.position, &train, val.as_ref(), training, self.data_wait, lr);
        self.data_wait = Duration::ZERO;
        // If this step was saved before its evaluation, it is saved again with the result.
        let again = self.saves.last == Some((self.position.step, false));
        if let Some(rule) = self.settings.early_stop.filter(|_| whole) {
            self.position.early_stop = rule.after(self.position.early_stop.take(), &train, val.as_ref());
        }
        self.position.close(whole, val);
        let due =
            matches!(self.settings.save_every, Every::Epochs(n) if self.position.epoch.is_multiple_of(n));
        if std::mem::take(&mut self.saves.waiting) || again || (whole && due) { self.save() } else { Ok(()) }
    }

    /// Evaluates a split over all ranks, with the average of the weights if there is one.
    pub fn evaluate(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        self.report_phase(Phase::Evaluate);
        self.swap_average()?;
        let sums = self.evaluate_model(dataset);
        self.swap_average()?;
        sums
    }

    fn evaluate_model(&mut self, dataset: &Arc<dyn Dataset>) -> Result<Sums> {
        buffers::before_evaluation(self.settings.train.buffers, &mut *self.model, &*self.group)?;
        let options = self.settings.loader.options(self.position.batching.batch_size, self.settings.seed);
        evaluate(&*self.model, &*self.settings.task, dataset, options, &*self.group)
    }
}

/// The key of a random stream: splitmix64's finaliser (Steele et al. 2014) over the three numbers.
pub(super) fn stream_key(seed: u64, rank: u64, micro_batch: u64) -> u64 {
    let mix = |mut z: u64| {
        z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    mix(mix(mix(seed) ^ rank) ^ micro_batch)
}
