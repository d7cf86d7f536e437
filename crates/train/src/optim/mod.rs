//! Optimizers, learning-rate schedules and gradient clipping, over host `f32` slices or tensors on a device.
//!
//! An [`OptimizerPlan`] is the resolved `[optimizer]`: an [`Optimizer`], which declares the keys of its table and
//! updates one parameter tensor, either as host slices in one fused pass or as Burn tensor operations on the tensor's
//! device. Most have one [`Formula`](kernels::formula::Formula) for both. A [`Schedule`] is the resolved `[scheduler]`: a
//! pure function from the number of optimizer steps done, and the reductions of the base rate, to the learning rate.
//! Each parameter has a [`Rule`]: that of the table itself, or of a group. [`clip`] has the global gradient norm,
//! [`norm_on_device`] its counterpart on devices. Nothing here depends on
//! the kind of device or on processes. On slices, every result is a deterministic function of its inputs, bit for bit.
//!
//! Formulas and defaults are PyTorch's (`torch.optim`, single-tensor path) unless an optimizer states otherwise.

mod adadelta;
mod adafactor;
mod adagrad;
mod adam;
mod adamax;
mod adan;
mod average;
pub mod clip;
mod device;
#[cfg(test)]
mod golden;
mod groups;
mod lamb;
mod lars;
mod lion;
mod muon;
mod nadam;
mod plan;
mod radam;
mod rmsprop;
mod rule;
pub mod schedule;
mod sgd;
#[cfg(test)]
mod side_by_side;
#[cfg(test)]
pub(crate) mod testing;

pub use average::{average, average_on_device};
pub use clip::{clip_coefficient, global_norm};
pub use device::{clip_on_device, norm_on_device};
pub use groups::Rule;
pub use plan::{OptimizerConfig, OptimizerKind, OptimizerPlan};
pub use schedule::Schedule;

use burn::tensor::Tensor;
use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::{Map, Value};
use spec::choice;
use std::fmt;
use std::sync::Arc;

/// Updates one parameter tensor at a time. The caller owns all tensor state, and saves and restores it under the names
/// from [`slots`](Optimizer::slots); new state is all zeros.
pub trait Optimizer: Send + Sync + fmt::Debug {
    /// Names of the state tensors of each parameter (PyTorch's names where it has the optimizer).
    fn slots(&self) -> &'static [&'static str];

    /// Shape of state tensor `slots()[slot]` for a parameter of this shape; `[0]` if the parameter has none.
    fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        let _ = slot;
        shape.to_vec()
    }

    /// The optimizer for matrices that the module has as the transpose of the state dict's (`burn::nn::Linear`), if it
    /// updates them differently.
    fn of_transposed(&self) -> Option<Arc<dyn Optimizer>> {
        None
    }

    /// Updates one parameter in place.
    ///
    /// * `step`: the number of this update, from 1.
    /// * `lr`: the learning rate of this step.
    /// * `scale`: multiplied with the gradient during the update; combines the clip coefficient and one over the number
    ///   of accumulated batches.
    /// * `shape`: the parameter's; its product is the length of `param` and `grad`.
    /// * `state`: one slice per slot, with the product of its `slot_shape` as length.
    ///
    /// Panics if a length is wrong or the number of state slices is not that of `slots()`.
    #[allow(clippy::too_many_arguments, reason = "one call a tensor; a struct would only rename them")]
    fn update(
        &self,
        step: u64,
        lr: f64,
        scale: f32,
        shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        state: &mut [&mut [f32]],
    );

    /// The same update as tensor operations, on any device; returns the new parameter. Reads no value back, so it does
    /// not wait for the device. Not for tensors that are tracked by autodiff.
    ///
    /// * `scale`: `[1]`, on the same device, so that the host does not wait for the norm that it is computed from.
    /// * `param` and `grad`: flat, with the product of `shape` as length.
    /// * `state`: one flat tensor per slot, with the product of its `slot_shape` as length; replaced.
    ///
    /// Panics if the number of state tensors is not that of `slots()`.
    #[allow(clippy::too_many_arguments, reason = "the arguments of `update`")]
    fn update_on_device(
        &self,
        step: u64,
        lr: f64,
        scale: Tensor<1>,
        shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1>;
}

choice! {
    /// Which parameters get weight decay.
    DecayOn:
    /// All parameters, as in PyTorch.
    All = "all",
    /// Tensors with two or more dimensions: no biases or norms, as in nanoGPT.
    Matrices = "matrices",
}

impl DecayOn {
    /// The weight decay of a parameter of this shape.
    fn decay(self, weight_decay: f64, shape: &[usize]) -> f64 {
        match self {
            DecayOn::Matrices if shape.len() < 2 => 0.0,
            _ => weight_decay,
        }
    }
}

/// The optimizers of ddp-run under their names in specs, in the order of messages.
pub fn standard_kinds() -> [(&'static str, OptimizerKind); 15] {
    [
        ("sgd", OptimizerPlan::read::<sgd::Sgd>),
        ("adam", OptimizerPlan::read::<adam::Adam<adam::Coupled>>),
        ("adamw", OptimizerPlan::read::<adam::Adam<adam::Decoupled>>),
        ("rmsprop", OptimizerPlan::read::<rmsprop::RmsProp>),
        ("adagrad", OptimizerPlan::read::<adagrad::Adagrad>),
        ("adadelta", OptimizerPlan::read::<adadelta::Adadelta>),
        ("adamax", OptimizerPlan::read::<adamax::Adamax>),
        ("nadam", OptimizerPlan::read::<nadam::NAdam>),
        ("radam", OptimizerPlan::read::<radam::RAdam>),
        ("adafactor", OptimizerPlan::read::<adafactor::Adafactor>),
        ("lion", OptimizerPlan::read::<lion::Lion>),
        ("adan", OptimizerPlan::read::<adan::Adan>),
        ("lamb", OptimizerPlan::read::<lamb::Lamb>),
        ("lars", OptimizerPlan::read::<lars::Lars>),
        ("muon", OptimizerPlan::read::<muon::Muon>),
    ]
}

/// The schema of `betas`.
fn betas<const N: usize>(_: &mut SchemaGenerator) -> Schema {
    let one = serde_json::json!({ "type": "number", "minimum": 0.0, "exclusiveMaximum": 1.0 });
    json_schema!({ "type": "array", "items": one, "minItems": N, "maxItems": N })
}

/// The keys of a component with their values.
fn values(config: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(values)) => values,
        _ => Map::new(),
    }
}

/// The state slices as an array. Panics if the caller passed another optimizer's state.
fn slots<'a, const N: usize>(state: &'a mut [&mut [f32]]) -> [&'a mut [f32]; N] {
    assert_eq!(state.len(), N, "optimizer state has the wrong number of tensors");
    let mut slices = state.iter_mut();
    std::array::from_fn(|_| &mut **slices.next().expect("length was checked"))
}

/// `1 - beta^step`, the bias correction of a moving average that started at zero.
fn bias_correction(beta: f64, step: u64) -> f64 {
    1.0 - beta.powf(step as f64)
}
