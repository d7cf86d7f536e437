//! The update of one optimizer step from averaged gradients: norm, clipping, then each parameter. In host memory it is
//! fused and in place; on a device all operations are enqueued, and the caller reads the norm.

use super::optimizer_state::OptimizerState;
use crate::models::{Layout, Model, StateEntry};
use crate::optim::{OptimizerPlan, Rule, clip_coefficient, clip_on_device, global_norm, norm_on_device};
use base::error::Result;
use burn::tensor::{Device, Tensor};
use ddp::device::is_host;
use ddp::{Reducer, Slot};

/// An optimizer and its state.
pub struct Updater {
    rules: Vec<Rule>,
    /// By tensor: the number of its rule, if it is trained.
    of: Vec<Option<usize>>,
    /// By tensor: updates of the run before its first one. Not 0 for a parameter that was frozen at first.
    since: Vec<u64>,
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
        let mut rules = plan.rules();
        let names = |e: &StateEntry| plan.rule_of(e.names().map(|e| e.name.as_str()));
        let mut of: Vec<Option<usize>> = entries.iter().map(|e| names(e).filter(|_| e.trainable())).collect();
        for (_, of) in entries.iter().zip(&mut of).filter(|(e, _)| e.layout == Layout::Transposed) {
            let Some(Rule { lr, optimizer }) = of.map(|rule| rules[rule].clone()) else { continue };
            if let Some(optimizer) = optimizer.of_transposed() {
                *of = Some(rules.len());
                rules.push(Rule { lr, optimizer });
            }
        }
        let lengths = entries.iter().zip(&of).map(|(e, rule)| {
            let Some(rule) = rule else { return Vec::new() };
            let (optimizer, shape) = (&rules[*rule].optimizer, e.module_shape());
            (0..optimizer.slots().len()).map(|s| optimizer.slot_shape(s, &shape).iter().product()).collect()
        });
        let device = (!is_host(device)).then(|| device.clone().without_autodiff());
        let state = OptimizerState::zeros(lengths, device);
        Self { since: vec![0; entries.len()], rules, of, clip_norm, state }
    }

    /// Names of the state arrays of tensor `index`; none if it is not trained.
    pub fn slots(&self, index: usize) -> &'static [&'static str] {
        self.of[index].map_or(&[], |rule| self.rules[rule].optimizer.slots())
    }

    /// Names of the state arrays of all parameters.
    pub fn all_slots(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        for slot in (0..self.of.len()).flat_map(|index| self.slots(index)) {
            if !all.contains(slot) {
                all.push(*slot);
            }
        }
        all
    }

    /// The state arrays of all parameters, by slot: number of the tensor, number of the slot, name
    /// in checkpoints.
    pub fn arrays(&self, entries: &[StateEntry]) -> Vec<(usize, usize, String)> {
        let mut all = Vec::new();
        for slot in self.all_slots() {
            for (index, entry) in entries.iter().enumerate() {
                if let Some(number) = self.slots(index).iter().position(|name| *name == slot) {
                    all.push((index, number, format!("{slot}.{}", entry.name)));
                }
            }
        }
        all
    }

    /// Shape of state array `slot` of tensor `index`, whose shape is `shape`.
    ///
    /// # Panics
    /// If the tensor is not trained.
    pub fn slot_shape(&self, index: usize, slot: usize, shape: &[usize]) -> Vec<usize> {
        let rule = self.of[index].expect("only what is trained has state");
        self.rules[rule].optimizer.slot_shape(slot, shape)
    }

    /// By tensor: updates of the run before its first one.
    pub fn since(&self) -> &[u64] {
        &self.since
    }

    /// [`Updater::since`], to be set from a checkpoint.
    pub fn since_mut(&mut self) -> &mut [u64] {
        &mut self.since
    }

    /// The learning rates of a step, by rule, given how the schedule scales a base rate.
    pub fn rates(&self, scheduled: impl Fn(f64) -> f64) -> Vec<f64> {
        self.rules.iter().map(|rule| scheduled(rule.lr)).collect()
    }

    /// One array per slot of [`Updater::slots`] and trainable parameter, in the module's layout.
    pub fn state(&self) -> &OptimizerState {
        &self.state
    }

    /// [`Updater::state`], to be set from a checkpoint.
    pub fn state_mut(&mut self) -> &mut OptimizerState {
        &mut self.state
    }

    /// Applies update number `update` (from 1) in host memory, with the rates of [`Updater::rates`]. Gradients are
    /// sums over micro-batches equal to `weight` full ones, averaged over ranks. Returns the L2 norm of all gradients before clipping. If it is
    /// not finite, nothing has changed; all ranks hold the same averaged gradients, so it is so on all of them.
    pub fn apply(
        &mut self,
        model: &mut dyn Model,
        reducer: &Reducer,
        update: u64,
        rates: &[f64],
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
                return Ok(grad_norm);
            }
            let clip = self.clip_norm.map_or(1.0, |max| clip_coefficient(grad_norm, max));
            let scale = clip * mean as f32;
            let Self { rules, of, since, state, .. } = self;
            let trained = |index: usize| of[index].is_some();
            model.edit(&trained, &mut |index, values| {
                let (Some(slot), Some(rule)) = (reducer.slot(index), of[index]) else { return };
                let (step, optimizer) = (own_step(update, since[index]), &rules[rule].optimizer);
                let (shape, mut arrays) = (&shapes[index], state.slices(index));
                optimizer.update(step, rates[rule], scale, shape, values, gradient(slot), &mut arrays);
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
        update: u64,
        rates: &[f64],
        weight: f64,
        loss_scale: f64,
    ) {
        let scale = clip_on_device(norm, self.clip_norm) / (weight * loss_scale);
        let shapes: Vec<Vec<usize>> = model.entries().iter().map(StateEntry::module_shape).collect();
        let Self { rules, of, since, state, .. } = self;
        let mut gradients = gradients;
        model.update(&mut |index, param| {
            let (Some(gradient), Some(rule)) = (gradients[index].take(), of[index]) else { return param };
            let (step, optimizer) = (own_step(update, since[index]), &rules[rule].optimizer);
            let (shape, arrays) = (&shapes[index], state.tensors(index));
            optimizer.update_on_device(step, rates[rule], scale.clone(), shape, param, gradient, arrays)
        });
    }
}

/// The number of a parameter's own update in update number `update` of the run.
fn own_step(update: u64, since: u64) -> u64 {
    update.saturating_sub(since).max(1)
}

#[cfg(test)]
#[path = "update_tests.rs"]
mod tests;
