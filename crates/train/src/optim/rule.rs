//! [`UpdateRule`]: both forms of an [`Optimizer`] in one function; the trait that the optimizers of ddp-run implement.

use super::device::{self, Whole};
use super::{Optimizer, OptimizerConfig, slots};
use burn::tensor::Tensor;
use kernels::formula::Formula;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;

/// An [`Optimizer`] and its keys.
pub trait UpdateRule:
    Debug + Default + Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static
{
    /// As [`OptimizerConfig::check`].
    fn check(&self) -> Result<(), (&'static str, String)> {
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str];

    fn slot_shape(&self, _slot: usize, shape: &[usize]) -> Vec<usize> {
        shape.to_vec()
    }

    /// As [`Optimizer::of_transposed`].
    fn of_transposed(&self) -> Option<Self> {
        None
    }

    /// Updates a parameter of this shape; arguments as in [`Optimizer::update`].
    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated;
}

/// One parameter with its gradient and its state: [`Host`] or [`OnDevice`].
pub trait RuleTarget: Sized {
    type Updated;

    /// Updates each element by itself.
    fn run<const N: usize, F: Formula<N>>(self, formula: F) -> Self::Updated;

    /// Updates the parameter by the function for this side.
    fn either(
        self,
        host: impl FnOnce(Host<'_, '_>),
        device: impl FnOnce(OnDevice<'_>) -> Tensor<1>,
    ) -> Self::Updated;

    /// Without the first `count` state tensors.
    fn skip_slots(self, count: usize) -> Self;
}

/// The arguments of [`Optimizer::update`] that are in host memory.
pub struct Host<'a, 's> {
    pub scale: f32,
    pub param: &'a mut [f32],
    pub grad: &'a [f32],
    pub state: &'a mut [&'s mut [f32]],
}

impl RuleTarget for Host<'_, '_> {
    type Updated = ();

    fn run<const N: usize, F: Formula<N>>(self, formula: F) {
        formula.run(self.scale, self.param, self.grad, slots::<N>(self.state));
    }

    fn either(self, host: impl FnOnce(Host<'_, '_>), _: impl FnOnce(OnDevice<'_>) -> Tensor<1>) {
        host(self);
    }

    fn skip_slots(self, count: usize) -> Self {
        Self { state: &mut self.state[count..], ..self }
    }
}

/// The arguments of [`Optimizer::update_on_device`] that are on the device.
pub struct OnDevice<'a> {
    pub scale: Tensor<1>,
    pub param: Tensor<1>,
    pub grad: Tensor<1>,
    pub state: &'a mut [Tensor<1>],
}

impl RuleTarget for OnDevice<'_> {
    type Updated = Tensor<1>;

    fn run<const N: usize, F: Formula<N>>(self, formula: F) -> Tensor<1> {
        device::for_all(self.param, self.grad, self.scale, self.state, |p, g, s| {
            let (p, s) = formula.apply(Whole(p), Whole(g), s.map(Whole));
            (p.0, s.map(|s| s.0))
        })
    }

    fn either(
        self,
        _: impl FnOnce(Host<'_, '_>),
        device: impl FnOnce(OnDevice<'_>) -> Tensor<1>,
    ) -> Tensor<1> {
        device(self)
    }

    fn skip_slots(self, count: usize) -> Self {
        Self { state: &mut self.state[count..], ..self }
    }
}

#[doc(hidden)]
impl<T: UpdateRule> OptimizerConfig for T {
    fn check(&self) -> Result<(), (&'static str, String)> {
        UpdateRule::check(self)
    }
}

#[doc(hidden)]
impl<T: UpdateRule> Optimizer for T {
    fn slots(&self) -> &'static [&'static str] {
        UpdateRule::slots(self)
    }

    fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        UpdateRule::slot_shape(self, slot, shape)
    }

    fn of_transposed(&self) -> Option<Arc<dyn Optimizer>> {
        Some(Arc::new(UpdateRule::of_transposed(self)?))
    }

    fn update(
        &self,
        step: u64,
        lr: f64,
        scale: f32,
        shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        state: &mut [&mut [f32]],
    ) {
        self.step(step, lr, shape, Host { scale, param, grad, state });
    }

    fn update_on_device(
        &self,
        step: u64,
        lr: f64,
        scale: Tensor<1>,
        shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        self.step(step, lr, shape, OnDevice { scale, param, grad, state })
    }
}
