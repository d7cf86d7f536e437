//! The forward and backward passes of a step, and the end of a step in host memory; `in_flight` has the end on a device.

use super::device_sums::BatchSums;
use super::flags::{Flags, exchange};
use super::{StepReport, Sums, Trainer, buffers, not_finite};
use crate::comm::Phase;
use crate::error::{Error, Result};
use burn::tensor::Tensor;
use std::time::{Duration, Instant};

/// A step with averaged gradients, before its update.
pub(super) struct Passes {
    /// Of each micro-batch, on this rank.
    pub sums: Vec<BatchSums>,
    /// Number of micro-batches.
    pub count: usize,
    /// Number of full micro-batches that they are equal to, by samples.
    pub weight: f64,
    pub begun: Instant,
    /// Time waited for data.
    pub waited: Duration,
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
    /// Ends a step in host memory and returns the ranks' requests.
    pub(super) fn update(&mut self, passes: Passes) -> Result<Flags> {
        let Passes { sums, count, weight, begun, waited } = passes;
        let local = add(sums)?;
        let (sums, flags) = exchange(local.clone(), self.requests(), &*self.group)?;
        let step = self.position.step + 1;
        if !sums.mean_loss().is_finite() {
            return Err(not_finite::loss(step, sums.mean_loss()));
        }
        self.report_phase(Phase::Update);
        let lr = self.lr(&self.position);
        let rates = self.updater.rates(|base| self.rate(base, &self.position));
        let grad_norm = self.updater.apply(&mut *self.model, &self.reducer, step, &rates, weight);
        let grad_norm = grad_norm.map_err(|error| self.with_hook_hint(error))?;
        if let Some(order) = self.reducer.learn_order()? {
            self.position.bucket_order = Some(order);
        }
        buffers::after_step(self.settings.train.buffers, &mut *self.model, &*self.group)?;
        self.follow_weights(step)?;
        let seconds = begun.elapsed().as_secs_f64();
        let data_wait = waited.as_secs_f64();
        self.done(count as u64, &StepReport { sums, local, lr, grad_norm, seconds, data_wait });
        Ok(flags)
    }
}
