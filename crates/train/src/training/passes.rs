//! The forward and backward passes of a step, and the end of a step in host memory; `in_flight` has the end on a device.

use super::device_sums::BatchSums;
use super::digests::InputDigests;
use super::feed::{DeviceBatch, Feed};
use super::mixing::mixed;
use super::state::TrainState;
use super::step_requests::{StepRequests, exchange};
use super::{StepReport, Sums, Trainer, digests, not_finite};
use crate::models::{Documents, passed};
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
    /// What the averaged gradients are sums over.
    pub weight: StepWeight,
    pub begun: Instant,
    /// Time waited for data.
    pub waited: Duration,
    /// In steps that have digests.
    pub inputs: Option<InputDigests>,
}

/// What the averaged gradients of a step are sums over, in full micro-batches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StepWeight {
    /// So many, by samples; equal on all ranks.
    Samples(f64),
    /// Each by what its loss is a mean over, of which a full one has `full`.
    Counted { full: f64 },
}

impl StepWeight {
    /// The number of micro-batches of each rank, where all ranks together counted `rows`.
    ///
    /// # Errors
    /// They counted none.
    pub fn of_all(self, rows: f64, world: usize) -> Result<f64> {
        match self {
            Self::Samples(weight) => Ok(weight),
            Self::Counted { .. } if rows == 0.0 => {
                Err(Error::data("no target of a step's samples is trained on any rank")
                    .hint("leave samples without trained targets out, or take larger batches"))
            }
            Self::Counted { full } => Ok(rows / (full * world as f64)),
        }
    }
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

/// A micro-batch of a step.
#[derive(Clone, Copy)]
struct MicroBatch {
    /// In the run.
    number: u64,
    /// In the step.
    index: usize,
    is_last: bool,
    /// Samples of a full one.
    full: usize,
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
        let (mut full, mut weight) = (None, None);
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
            // The last micro-batch of an epoch may be short, on all ranks alike.
            let full = *full.get_or_insert(batch.host.len);
            let of_step = MicroBatch { number, index: micro, is_last: micro + 1 == count, full };
            let (these, own) = self.micro_batch(feed, batch, of_step)?;
            weight = Some(match (weight, own) {
                (None, own) => own,
                (Some(StepWeight::Samples(before)), StepWeight::Samples(own)) => {
                    StepWeight::Samples(before + own)
                }
                (Some(before @ StepWeight::Counted { .. }), StepWeight::Counted { .. }) => before,
                _ => {
                    return Err(Error::spec(
                        "the task weighs some micro-batches by what it counts, but not others",
                    )
                    .hint("`StepOutput::weigh_by_count` is for all of them"));
                }
            });
            sums.push(these);
        }
        let weight = weight.unwrap_or(StepWeight::Samples(0.0));
        self.report_phase(Phase::Sync);
        self.gradients.reducer.finish()?;
        let passes = Passes { sums, count, weight, begun, waited, inputs };
        if self.state.is_in_host_memory() { self.update(passes) } else { self.launch(passes) }
    }

    /// Forward and backward pass of one micro-batch. Returns its sums on this rank, and its weight in the step.
    fn micro_batch(
        &mut self,
        feed: &mut Feed,
        batch: DeviceBatch,
        MicroBatch { number, index, is_last, full }: MicroBatch,
    ) -> Result<(BatchSums, StepWeight)> {
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
        self.gradients.reducer.begin(index, is_last);
        let context = StepContext::new(true, &*self.group).mixed(lighter);
        let task = &*self.settings.task;
        // Each sample of a step has the same weight, unless its output says otherwise.
        let by_samples = batch.len as f64 / full as f64;
        let loss_factor = self.state.position.loss_factor();
        let own = task.runs_backward().then(|| {
            Arc::new(OwnBackward::new(self.gradients.reducer.sink(), (by_samples * loss_factor) as f32))
        });
        let taps = match &own {
            Some(own) => self.gradients.ladder.taps(own.clone()),
            None => self.gradients.ladder.taps(self.gradients.reducer.sink()),
        };
        let documents = given.input.given_documents();
        let output = passed(&*self.state.model, Arc::new(taps), |net| task.step(net, given, &context))?;
        documents.as_ref().map_or(Ok(()), Documents::require_use)?;
        let loss = output.loss.clone();
        let (share, weight) = match output.counted(&target) {
            None => (by_samples, StepWeight::Samples(by_samples)),
            Some(_) if own.is_some() => {
                return Err(Error::spec("a model that runs the backward pass itself can't weigh by count")
                    .hint("a task of your own (docs/extending.md) can"));
            }
            Some(rows) => {
                // As many as a batch of which all are counted; another number would only round differently.
                let full = (full * batch.target.shape.iter().product::<usize>()) as f64;
                (rows as f64 / full, StepWeight::Counted { full })
            }
        };
        if output.gradients == Gradients::Added && matches!(weight, StepWeight::Counted { .. }) {
            return Err(Error::spec("a loss of the rows of all ranks can't weigh by what each rank counts")
                .hint("take one of `add_gradients` and `weigh_by_count`"));
        }
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
            None => drop(scaled(loss, ranks * (share * loss_factor)).backward()),
        }
        if !is_last {
            self.gradients.reducer.end_micro();
        }
        Ok((sums, weight))
    }

    /// Ends a step in host memory and returns the ranks' requests.
    pub(super) fn update(&mut self, passes: Passes) -> Result<StepRequests> {
        let Passes { sums, count, weight, begun, waited, inputs } = passes;
        let local = add(sums)?;
        let (sums, flags) = exchange(local.clone(), self.requests(), &*self.group)?;
        let step = self.state.position.step + 1;
        let weight = weight.of_all(sums.rows, self.group.world_size())?;
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
        self.gradients.reducer.release();
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
