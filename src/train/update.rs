//! The update of one optimizer step from averaged gradients: norm, clipping, then each parameter. In host memory it is
//! fused and in place; on a device all operations are enqueued, and the caller reads the norm.

use super::not_finite;
use super::optimizer_state::OptimizerState;
use crate::ddp::{Reducer, Slot};
use crate::device::is_host;
use crate::error::Result;
use crate::models::{ALL, Model, StateEntry};
use crate::optim::{Optimizer, OptimizerPlan, clip_coefficient, clip_on_device, global_norm, norm_on_device};
use burn::tensor::{Device, Tensor};
use std::sync::Arc;

/// An optimizer and its state.
pub struct Updater {
    optimizer: Arc<dyn Optimizer>,
    clip_norm: Option<f64>,
    state: OptimizerState,
}

impl Updater {
    /// Keeps the state where the model's parameters are, on `device`.
    pub fn new(
        plan: &OptimizerPlan,
        clip_norm: Option<f64>,
        entries: &[StateEntry],
        device: &Device,
    ) -> Self {
        let optimizer = plan.build();
        let lengths = |e: &StateEntry| match e.trainable() {
            true => {
                let shape = e.module_shape();
                let slots = 0..optimizer.slots().len();
                slots.map(|s| optimizer.slot_shape(s, &shape).iter().product()).collect()
            }
            false => Vec::new(),
        };
        let device = (!is_host(device)).then(|| device.clone().without_autodiff());
        Self { clip_norm, state: OptimizerState::zeros(entries.iter().map(lengths), device), optimizer }
    }

    /// Names of the state arrays of a parameter.
    pub fn slots(&self) -> &'static [&'static str] {
        self.optimizer.slots()
    }

    /// Shape of state array `slot` of a parameter of this shape.
    pub fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        self.optimizer.slot_shape(slot, shape)
    }

    /// One array per slot of [`Updater::slots`] and trainable parameter, in the module's layout.
    pub fn state(&self) -> &OptimizerState {
        &self.state
    }

    pub fn state_mut(&mut self) -> &mut OptimizerState {
        &mut self.state
    }

    /// Applies optimizer step number `step` (from 1) in host memory. Gradients are sums over micro-batches equal to
    /// `weight` full ones, averaged over ranks. Returns the L2 norm of all gradients before clipping.
    ///
    /// # Errors
    /// A gradient that is not finite; nothing has changed then. All ranks hold the same averaged gradients, so all of
    /// them fail in the same step.
    pub fn apply(
        &mut self,
        model: &mut dyn Model,
        reducer: &Reducer,
        step: u64,
        lr: f64,
        weight: f64,
    ) -> Result<f64> {
        let mean = 1.0 / weight;
        let shapes: Vec<Vec<usize>> = model.entries().iter().map(StateEntry::module_shape).collect();
        reducer.with_buckets(|buckets| {
            let slices: Vec<&[f32]> = buckets.iter().map(|b| &**b).collect();
            let gradient = |slot: Slot| &slices[slot.bucket][slot.offset..slot.offset + slot.len];
            // By parameter, so that the sum does not depend on the order of the buckets.
            let all = (0..shapes.len()).filter_map(|index| reducer.slot(index));
            let grad_norm = global_norm(all.map(gradient)) * mean;
            if !grad_norm.is_finite() {
                return Err(not_finite::gradient(step, grad_norm));
            }
            let clip = self.clip_norm.map_or(1.0, |max| clip_coefficient(grad_norm, max));
            let scale = clip * mean as f32;
            let (optimizer, state) = (&*self.optimizer, &mut self.state);
            model.edit(ALL, &mut |index, values| {
                let Some(slot) = reducer.slot(index) else { return };
                let mut arrays = state.slices(index);
                optimizer.update(step, lr, scale, &shapes[index], values, gradient(slot), &mut arrays);
            })?;
            Ok(grad_norm)
        })
    }

    /// The L2 norm of `gradients`, which are flat, by parameter, on their device, and are sums of `weight`
    /// micro-batches, averaged over ranks and multiplied by `loss_scale`. The norm is on the device too.
    pub fn norm(&self, gradients: &[Option<Tensor<1>>], weight: f64, loss_scale: f64) -> Tensor<1> {
        let all: Vec<Tensor<1>> = gradients.iter().flatten().cloned().collect();
        norm_on_device(&all) / (weight * loss_scale)
    }

    /// Whether updates depend on the norm.
    pub fn clips(&self) -> bool {
        self.clip_norm.is_some()
    }

    /// As [`Updater::apply`], enqueued on the device. The caller must check that `norm` (see [`Updater::norm`]) is
    /// finite before anything is saved.
    #[allow(clippy::too_many_arguments)]
    pub fn apply_on_device(
        &mut self,
        model: &mut dyn Model,
        gradients: Vec<Option<Tensor<1>>>,
        norm: Tensor<1>,
        step: u64,
        lr: f64,
        weight: f64,
        loss_scale: f64,
    ) {
        let scale = clip_on_device(norm, self.clip_norm) / (weight * loss_scale);
        let shapes: Vec<Vec<usize>> = model.entries().iter().map(StateEntry::module_shape).collect();
        let (mut gradients, optimizer, state) = (gradients, &*self.optimizer, &mut self.state);
        model.update(&mut |index, param| {
            let Some(gradient) = gradients[index].take() else { return param };
            let arrays = state.tensors(index);
            optimizer.update_on_device(step, lr, scale.clone(), &shapes[index], param, gradient, arrays)
        });
    }
}
