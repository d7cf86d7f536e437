//! The forward and backward passes of a step, and the end of a step in host memory; `in_flight` has the end on a device.

use super::device_sums::BatchSums;
use super::digests::InputDigests;
use super::feed::{DeviceBatch, Feed};
use super::mixing::mixed;
use super::state::TrainState;
use super::step_requests::{StepRequests, exchange};
use super::{StepReport, Sums, Trainer, digests, not_finite};
use crate::models::passed;
use crate::tasks::{Gradients, StepContext};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use collectives::Phase;
use ddp::OwnBackward;
use ddp::device::drawn;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A step with averaged gradients, before its update.
pub(super) struct Passes {
    /// The sums of each micro-batch, on this rank.
    pub sums: Vec<BatchSums>,
    /// Number of micro-batches.
    pub count: usize,
    /// Number of full micro-batches that they are equal to, by samples.
    pub weight: f64,
    pub begun: Instant,
    /// Time waited for data.
    pub waited: Duration,
    /// In steps that have digests.
    pub inputs: Option<InputDigests>,
}

/// Adds the sums of a step's micro-batches, in order.
pub(super) fn add(sums: Vec<BatchSums>) -> Result<Sums> {
    let mut all = Sums::default();
    for sums in sums {
        all.add(&sums.read()?);
    }
    Ok(all)
}

/// The loss that the backward pass of a micro-batch starts from.
pub(super) fn scaled(loss: Tensor<1>, factor: f64) -> Tensor<1> {
    if factor == 1.0 { loss } else { loss * factor }
}

/// The error about a step that should have run the backward pass itself.
pub(super) fn no_backward() -> Error {
    Error::spec("the model's `TrainStep::step` ran no backward pass through the model that it was called on")
        .hint("it calls `backward` on its loss, as in `TrainOutput::new(self, item.loss.backward(), item)`")
}

impl Trainer<'_> {
    /// Takes one optimizer step. Returns its requests, or on a device those of the step before.
    pub(super) fn step(&mut self, feed: &mut Feed, micro_batches: u64) -> Result<StepRequests> {
        let begun = Instant::now();
        let ahead = self.ahead();
        self.phases.begin_step(ahead.step);
        let left = (micro_batches - ahead.micro) as usize;
        let count = self.state.position.batching.accumulate.min(left);
        let mut sums = Vec::with_capacity(count);
        let (mut full, mut weight) = (None, 0.0);
        let mut waited = Duration::ZERO;
        let mut inputs = self.settings.digests.is_due(ahead.step + 1).then(InputDigests::default);
        for micro in 0..count {
            self.report_phase(Phase::Data);
            let asked = Instant::now();
            let batch =
                feed.next().unwrap_or_else(|| Err(Error::internal("the loader ran out of batches")))?;
            waited += asked.elapsed();
            let (rank, world) = (self.group.rank(), self.group.world_size());
            inputs.iter_mut().for_each(|inputs| inputs.add(&batch.host, rank, world));
            tracing::trace!(epoch = self.state.position.epoch, indices = ?batch.host.indices, "batch");
            let number = ahead.micro_total + micro as u64;
            // Each sample of a step has the same weight. The last micro-batch of an epoch may be short, on all ranks alike.
            let share = batch.host.len as f64 / *full.get_or_insert(batch.host.len) as f64;
            weight += share;
            sums.push(self.micro_batch(feed, batch, number, share, micro, micro + 1 == count)?);
        }
        self.report_phase(Phase::Sync);
        self.gradients.reducer.finish()?;
        let passes = Passes { sums, count, weight, begun, waited, inputs };
        if self.state.is_in_host_memory() { self.update(passes) } else { self.launch(passes) }
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
        drawn(
            self.state.model.device(),
            stream_key(self.settings.seed, self.group.rank() as u64, number),
            || (),
        );
        self.gradients.reducer.begin(micro, last);
        let context = StepContext::new(true, &*self.group).mixed(lighter);
        let task = &*self.settings.task;
        let factor = share * self.state.position.loss_factor();
        let own = task
            .runs_backward()
            .then(|| Arc::new(OwnBackward::new(self.gradients.reducer.sink(), factor as f32)));
        let taps = match &own {
            Some(own) => self.gradients.ladder.taps(own.clone()),
            None => self.gradients.ladder.taps(self.gradients.reducer.sink()),
        };
        let output = passed(&*self.state.model, Arc::new(taps), |net| task.step(net, given, &context))?;
        let loss = output.loss.clone();
        let ranks = match output.gradients {
            Gradients::Averaged => 1.0,
            Gradients::Added => self.group.world_size() as f64,
        };
        let sums = BatchSums::new(output.inner(), &target, &batch, self.state.is_in_host_memory())?;
        feed.recycle(batch);
        self.report_phase(Phase::Backward);
        match own {
            Some(own) if own.ran() => {}
            Some(_) => return Err(no_backward()),
            None => drop(scaled(loss, ranks * factor).backward()),
        }
        if !last {
            self.gradients.reducer.end_micro();
        }
        Ok(sums)
    }

    /// Ends a step in host memory and returns the ranks' requests.
    pub(super) fn update(&mut self, passes: Passes) -> Result<StepRequests> {
        let Passes { sums, count, weight, begun, waited, inputs } = passes;
        let local = add(sums)?;
        let (sums, flags) = exchange(local.clone(), self.requests(), &*self.group)?;
        let step = self.state.position.step + 1;
        if !sums.mean_loss().is_finite() {
            return Err(not_finite::loss(step, sums.mean_loss()));
        }
        let anatomy = self.exchange_times(step)?;
        let mut digests = digests::begin(inputs, step, self.state.position.epoch, &*self.group)?;
        digests::add_gradients(&mut digests, self.state.model.entries(), &self.gradients.reducer);
        self.report_phase(Phase::Update);
        let (lr, rates) = (self.lr(&self.state.position), self.rates(&self.state.position));
        let TrainState { model, updater, position, .. } = &mut self.state;
        let update = position.updates() + 1;
        let grad_norm = updater.apply(&mut **model, &self.gradients.reducer, update, &rates, weight)?;
        if !grad_norm.is_finite() {
            return Err(self.gradients.with_hook_hint(not_finite::gradient(step, grad_norm)));
        }
        self.after_update(step, Some(update), &mut digests)?;
        let seconds = begun.elapsed().as_secs_f64();
        let data_wait = waited.as_secs_f64();
        let report = StepReport { sums, local, lr, grad_norm, seconds, data_wait, anatomy, digests };
        self.done(count as u64, &report);
        Ok(flags)
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
