//! Steps on a device. The host enqueues a step and continues with the next one. A step's loss, metrics and gradient
//! norm are read when the next step is enqueued too, so that the device never waits for the host in between. Where
//! something depends on these numbers (a save, a stop, the end of an epoch, a loss scale), the step *lands* at once.

use super::device_sums::BatchSums;
use super::digests::StepDigests;
use super::passes::{Passes, StepWeight, add};
use super::state::TrainState;
use super::step_requests::{StepRequests, exchange};
use super::{Position, StepReport, Sums, Trainer, digests, not_finite};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use collectives::{Phase, ProcessGroup, ReduceOp};
use ddp::device::Readback;
use std::time::{Duration, Instant};

/// A step enqueued on the device.
pub(super) struct InFlight {
    micro_batches: u64,
    sums: Vec<BatchSums>,
    grad_norm: Readback,
    lr: f64,
    begun: Instant,
    waited: Duration,
    /// Skipped by the loss scale; its numbers may have any value.
    skipped: bool,
    digests: StepDigests,
}

/// The step that a device computes while the host enqueues the next one.
pub(super) struct DeviceQueue {
    step: Option<InFlight>,
    /// When the sums of the last step arrived.
    last_landed: Instant,
}

impl DeviceQueue {
    pub fn new() -> Self {
        Self { step: None, last_landed: Instant::now() }
    }

    /// No step is in flight.
    pub fn is_empty(&self) -> bool {
        self.step.is_none()
    }

    /// The position after the step in flight, without its sums.
    pub fn ahead(&self, position: &Position) -> Position {
        let mut position = position.clone();
        if let Some(step) = &self.step {
            position.count(step.micro_batches);
        }
        position
    }

    /// The seconds of a step that was begun at `begun` and lands now: steps overlap, so they count
    /// from one landing to the next.
    fn seconds(&mut self, begun: Instant) -> f64 {
        let seconds = self.last_landed.max(begun).elapsed().as_secs_f64();
        self.last_landed = Instant::now();
        seconds
    }
}

impl Trainer<'_> {
    /// Enqueues the update of a step whose forward and backward passes are enqueued. Returns the requests of the step
    /// that has landed, if one has.
    pub(super) fn launch(&mut self, passes: Passes) -> Result<StepRequests> {
        let Passes { sums, count, weight, begun, waited, inputs } = passes;
        let weight = match weight {
            StepWeight::Samples(weight) => weight,
            // The host knows it before the device has computed anything.
            StepWeight::Counted { .. } => {
                let mut rows = [sums.iter().map(BatchSums::rows).sum::<f64>()];
                self.group.all_reduce(rows.as_mut_slice().into(), ReduceOp::Sum)?;
                weight.of_all(rows[0], self.group.world_size())?
            }
        };
        self.report_phase(Phase::Update);
        let before = self.ahead();
        let (step, lr) = (before.step + 1, self.lr(&before));
        let gradients = self.gradients.reducer.take_from_device();
        let gradients = gradients.ok_or_else(|| Error::internal("the gradients are not on a device"))?;
        let mut digests = digests::begin(inputs, step, before.epoch, &*self.group)?;
        digests::add_device_gradients(&mut digests, self.state.model.entries(), &gradients)?;
        let (scale, scales) = (before.loss_factor(), before.loss_scale.is_some());
        let mut norm = self.state.updater.norm(&gradients, weight, scale);
        if self.state.updater.clips() || scales {
            // Ranks may compute the norm with different kernels; the update must be equal on all of them.
            norm = self.gradients.reducer.agree(norm)?;
        }
        let update = self.update_counts(&norm, step)?.then_some(before.updates() + 1);
        if let Some(update) = update {
            let rates = self.rates(&before);
            let TrainState { model, updater, .. } = &mut self.state;
            updater.apply_on_device(&mut **model, gradients, norm.clone(), update, &rates, weight, scale);
        }
        self.after_update(step, update, &mut digests)?;
        let sums = sums.into_iter().map(BatchSums::fetch).collect::<Result<Vec<_>>>()?;
        let grad_norm = Readback::start(norm)?;
        let flags = self.land()?;
        self.queue.step = Some(InFlight {
            micro_batches: count as u64,
            sums,
            grad_norm,
            lr,
            begun,
            waited,
            skipped: update.is_none(),
            digests,
        });
        if !(flags.stop || flags.save || scales || self.saves.is_due_after(self.ahead().step)) {
            return Ok(flags);
        }
        let own = self.land()?;
        Ok(StepRequests { stop: flags.stop || own.stop, save: flags.save || own.save })
    }

    /// With a loss scale: whether the update applies, that is, no gradient overflowed in this step. Waits for the device.
    fn update_counts(&mut self, norm: &Tensor<1>, step: u64) -> Result<bool> {
        let Some(scale) = &mut self.state.position.loss_scale else { return Ok(true) };
        let norm = read_norm(Readback::start(norm.clone())?, &*self.group)?;
        let before = scale.scale;
        let counts = scale.after(norm.is_finite());
        if scale.scale != before {
            self.gradients.reducer.rescale((scale.scale / before) as f32);
        }
        counts.ok_or_else(|| self.gradients.with_hook_hint(not_finite::gradient(step, norm)))
    }

    /// Waits for the step in flight, if any, then counts and reports it. Returns the requests that the ranks exchange here.
    pub(super) fn land(&mut self) -> Result<StepRequests> {
        let Some(InFlight { micro_batches, sums, grad_norm, lr, begun, waited, skipped, digests }) =
            self.queue.step.take()
        else {
            return Ok(StepRequests::default());
        };
        self.report_phase(Phase::Sync);
        let local = add(sums)?;
        let grad_norm = read_norm(grad_norm, &*self.group)?;
        let (mut sums, flags) = exchange(local.clone(), self.requests(), &*self.group)?;
        let step = self.state.position.step + 1;
        if skipped {
            // As in PyTorch's GradScaler: the step is skipped, and its metrics are left out.
            sums = Sums { samples: sums.samples, ..Sums::default() };
        } else if !sums.mean_loss().is_finite() {
            return Err(not_finite::loss(step, sums.mean_loss()));
        }
        if !grad_norm.is_finite() && self.state.position.loss_scale.is_none() {
            return Err(self.gradients.with_hook_hint(not_finite::gradient(step, grad_norm)));
        }
        let anatomy = self.exchange_times(step)?;
        let (seconds, data_wait) = (self.queue.seconds(begun), waited.as_secs_f64());
        let report = StepReport { sums, local, lr, grad_norm, seconds, data_wait, anatomy, digests };
        self.done(micro_batches, &report);
        Ok(flags)
    }
}

/// Waits for the norm and returns it.
fn read_norm(norm: Readback, group: &dyn ProcessGroup) -> Result<f64> {
    let norm = f64::from(norm.wait()?[0]);
    // After a failed collective the device continues with invalid buffers.
    group.device_collectives().map_or(Ok(()), |device| device.check())?;
    Ok(norm)
}
