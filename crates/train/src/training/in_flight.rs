//! Steps on a device. The host enqueues a step and continues with the next one. A step's loss, metrics and gradient
//! norm are read when the next step is enqueued too, so that the device never waits for the host in between. Where
//! something depends on these numbers (a save, a stop, the end of an epoch, a loss scale), the step *lands* at once.

use super::device_sums::BatchSums;
use super::digests::StepDigests;
use super::flags::{Flags, exchange};
use super::passes::{Passes, add};
use super::{StepReport, Sums, Trainer, buffers, not_finite};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use collectives::{Phase, ProcessGroup};
use ddp::device::Readback;
use std::time::{Duration, Instant};

/// A step enqueued on the device.
pub(super) struct InFlight {
    pub micro_batches: u64,
    sums: Vec<BatchSums>,
    grad_norm: Readback,
    lr: f64,
    begun: Instant,
    waited: Duration,
    /// Skipped by the loss scale; its numbers may have any value.
    skipped: bool,
    digests: StepDigests,
}

impl Trainer<'_> {
    /// Enqueues the update of a step whose forward and backward passes are enqueued. Returns the requests of the step
    /// that has landed, if one has.
    pub(super) fn launch(&mut self, passes: Passes) -> Result<Flags> {
        let Passes { sums, count, weight, begun, waited, inputs } = passes;
        self.report_phase(Phase::Update);
        let before = self.ahead();
        let (step, lr) = (before.step + 1, self.lr(&before));
        let gradients = self.reducer.take_from_device();
        let gradients = gradients.ok_or_else(|| Error::internal("the gradients are not on a device"))?;
        let mut digests = self.begin_digests(inputs, step)?;
        self.digest_device_gradients(&mut digests, &gradients)?;
        let scale = before.loss_factor();
        let mut norm = self.updater.norm(&gradients, weight, scale);
        if self.updater.clips() || self.position.loss_scale.is_some() {
            // Ranks may compute the norm with different kernels; the update must be equal on all of them.
            norm = self.reducer.agree(norm)?;
        }
        let counts = self.update_counts(&norm, step)?;
        let update = before.updates() + 1;
        if counts {
            let rates = self.updater.rates(|base| self.rate(base, &before));
            let model = &mut *self.model;
            self.updater.apply_on_device(model, gradients, norm.clone(), update, &rates, weight, scale);
        }
        if let Some(order) = self.reducer.learn_order()? {
            self.position.bucket_order = Some(order);
        }
        buffers::after_step(self.settings.train.buffers, &mut *self.model, &*self.group)?;
        if counts {
            self.follow_weights(update)?;
        }
        self.digest_state(&mut digests)?;
        self.check_replicas_after(step)?;
        let sums = sums.into_iter().map(BatchSums::fetch).collect::<Result<Vec<_>>>()?;
        let grad_norm = Readback::start(norm)?;
        let flags = self.land()?;
        let step = InFlight {
            micro_batches: count as u64,
            sums,
            grad_norm,
            lr,
            begun,
            waited,
            skipped: !counts,
            digests,
        };
        self.in_flight = Some(step);
        let ahead = self.ahead();
        let needed =
            flags.stop || flags.save || self.saves_after(ahead.step) || self.position.loss_scale.is_some();
        if !needed {
            return Ok(flags);
        }
        let own = self.land()?;
        Ok(Flags { stop: flags.stop || own.stop, save: flags.save || own.save })
    }

    /// With a loss scale: whether the update applies, that is, no gradient overflowed in this step. Waits for the device.
    fn update_counts(&mut self, norm: &Tensor<1>, step: u64) -> Result<bool> {
        let Some(scale) = &mut self.position.loss_scale else { return Ok(true) };
        let norm = read_norm(Readback::start(norm.clone())?, &*self.group)?;
        let before = scale.scale;
        let counts = scale.after(norm.is_finite());
        if scale.scale != before {
            self.reducer.rescale((scale.scale / before) as f32);
        }
        counts.ok_or_else(|| self.with_hook_hint(not_finite::gradient(step, norm)))
    }

    /// Waits for the step in flight, if any, then counts and reports it. Returns the requests that the ranks exchange here.
    pub(super) fn land(&mut self) -> Result<Flags> {
        let Some(InFlight { micro_batches, sums, grad_norm, lr, begun, waited, skipped, digests }) =
            self.in_flight.take()
        else {
            return Ok(Flags::default());
        };
        self.report_phase(Phase::Sync);
        let local = add(sums)?;
        let grad_norm = read_norm(grad_norm, &*self.group)?;
        let (mut sums, flags) = exchange(local.clone(), self.requests(), &*self.group)?;
        let step = self.position.step + 1;
        if skipped {
            // As in PyTorch's GradScaler: the step is skipped, and its metrics are left out.
            sums = Sums { samples: sums.samples, ..Sums::default() };
        } else if !sums.mean_loss().is_finite() {
            return Err(not_finite::loss(step, sums.mean_loss()));
        }
        if !grad_norm.is_finite() && self.position.loss_scale.is_none() {
            return Err(self.with_hook_hint(not_finite::gradient(step, grad_norm)));
        }
        let anatomy = self.exchange_times(step)?;
        let seconds = self.last_landed.max(begun).elapsed().as_secs_f64();
        self.last_landed = Instant::now();
        let data_wait = waited.as_secs_f64();
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
