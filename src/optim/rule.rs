//! [`Optimizer`] with the arguments of each side in a struct: the trait that the optimizers of ddp-run implement.

use super::Optimizer;
use burn::tensor::Tensor;
use std::fmt;

/// The arguments of [`Optimizer::update`] that are in host memory.
pub struct Host<'a, 's> {
    pub scale: f32,
    pub param: &'a mut [f32],
    pub grad: &'a [f32],
    pub state: &'a mut [&'s mut [f32]],
}

/// The arguments of [`Optimizer::update_on_device`] that are on the device.
pub struct OnDevice<'a> {
    pub scale: Tensor<1>,
    pub param: Tensor<1>,
    pub grad: Tensor<1>,
    pub state: &'a mut [Tensor<1>],
}

/// An [`Optimizer`].
pub trait Rule: Send + Sync + fmt::Debug {
    fn slots(&self) -> &'static [&'static str];

    fn slot_shape(&self, _slot: usize, shape: &[usize]) -> Vec<usize> {
        shape.to_vec()
    }

    fn on_host(&self, step: u64, lr: f64, shape: &[usize], on: Host<'_, '_>);

    fn on_device(&self, step: u64, lr: f64, shape: &[usize], on: OnDevice<'_>) -> Tensor<1>;
}

#[doc(hidden)]
impl<T: Rule> Optimizer for T {
    fn slots(&self) -> &'static [&'static str] {
        Rule::slots(self)
    }

    fn slot_shape(&self, slot: usize, shape: &[usize]) -> Vec<usize> {
        Rule::slot_shape(self, slot, shape)
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
        self.on_host(step, lr, shape, Host { scale, param, grad, state });
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
        self.on_device(step, lr, shape, OnDevice { scale, param, grad, state })
    }
}
