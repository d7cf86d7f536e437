//! Communication hooks for gradients that are averaged in device memory.

use super::error_feedback::{Half, divisor};
use burn::tensor::{DType, FloatDType, Tensor};
use std::marker::PhantomData;

/// The form of a [`CommHook`](super::CommHook) for a group that averages in device memory (NCCL). Its state equals that
/// of the host form, so that a checkpoint resumes with either.
pub(crate) trait DeviceHook: Send {
    /// Returns what the group averages in place of this rank's `gradients` (`[n]`, f32), with the same shape and type
    /// on all ranks. Its values change afterwards, so nothing that the hook keeps may be computed from its handle.
    fn send(&mut self, bucket: usize, gradients: Tensor<1>, world_size: usize) -> Tensor<1>;

    /// Returns what the optimizer gets (`[n]`, f32), given the average of what was sent.
    fn receive(&mut self, bucket: usize, average: Tensor<1>) -> Tensor<1>;

    /// As [`CommHook::state`](super::CommHook::state), f32; `None` if there is none.
    fn state(&self, _bucket: usize) -> Option<Tensor<1>> {
        None
    }

    /// As [`CommHook::restore`](super::CommHook::restore).
    fn restore(&mut self, _bucket: usize, _state: Tensor<1>) {}

    /// As [`CommHook::rescale`](super::CommHook::rescale).
    fn rescale(&mut self, _factor: f32) {}
}

/// [`ErrorFeedback`](super::error_feedback::ErrorFeedback) in device memory; sends and keeps the same bits.
pub(super) struct DeviceErrorFeedback<H> {
    /// By bucket: the residual that this rank has not sent yet.
    residuals: Vec<Option<Tensor<1>>>,
    /// The divisor of the buckets in flight.
    divisor: f32,
    wire: PhantomData<fn() -> H>,
}

impl<H> Default for DeviceErrorFeedback<H> {
    fn default() -> Self {
        Self { residuals: Vec::new(), divisor: 1.0, wire: PhantomData }
    }
}

impl<H> DeviceErrorFeedback<H> {
    fn residual(&mut self, bucket: usize) -> &mut Option<Tensor<1>> {
        if self.residuals.len() <= bucket {
            self.residuals.resize(bucket + 1, None);
        }
        &mut self.residuals[bucket]
    }
}

impl<H: Half> DeviceHook for DeviceErrorFeedback<H> {
    fn send(&mut self, bucket: usize, gradients: Tensor<1>, world_size: usize) -> Tensor<1> {
        self.divisor = divisor(world_size);
        let divisor = self.divisor;
        let residual = self.residual(bucket);
        let owed = match residual.take() {
            Some(residual) => residual + gradients,
            None => gradients,
        };
        let scaled = owed.clone() * (1.0 / divisor);
        let over = scaled.clone().abs().greater_elem(H::LARGEST);
        let lost = over.clone().bool_or(owed.clone().is_nan());
        let within = scaled.clone().mask_where(over, scaled * f32::INFINITY);
        // Cast separately for the return value: the residual must not be computed from a tensor whose values change.
        let sent = within.clone().cast(H::DEVICE).cast(FloatDType::F32) * divisor;
        let lost = lost.bool_or(sent.clone().is_inf());
        *residual = Some((owed - sent).mask_fill(lost, 0.0));
        within.cast(H::DEVICE)
    }

    fn receive(&mut self, _: usize, average: Tensor<1>) -> Tensor<1> {
        average.cast(FloatDType::F32) * self.divisor
    }

    fn state(&self, bucket: usize) -> Option<Tensor<1>> {
        self.residuals.get(bucket).cloned().flatten()
    }

    fn restore(&mut self, bucket: usize, state: Tensor<1>) {
        debug_assert_eq!(state.dtype(), DType::F32);
        *self.residual(bucket) = Some(state);
    }

    fn rescale(&mut self, factor: f32) {
        for residual in self.residuals.iter_mut().flatten() {
            *residual = residual.clone() * factor;
        }
    }
}
