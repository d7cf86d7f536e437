//! `adagrad`: `torch.optim.Adagrad`.

use super::{Optimizer, WeightDecay, device, simd, slots};
use burn::tensor::Tensor;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adagrad {
    pub lr_decay: f64,
    pub initial_accumulator_value: f64,
    pub eps: f64,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Adagrad {
    /// The decayed learning rate, and what joins the accumulator.
    fn size_and_initial(&self, step: u64, lr: f64) -> (f32, f32) {
        let size = (lr / (1.0 + (step - 1) as f64 * self.lr_decay)) as f32;
        // State comes as zeros; the initial value joins at the first step.
        (size, if step == 1 { self.initial_accumulator_value as f32 } else { 0.0 })
    }
}

impl Optimizer for Adagrad {
    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
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
        let (decay, eps) = (self.decay.of(shape) as f32, self.eps as f32);
        let (size, initial) = self.size_and_initial(step, lr);
        simd::for_each(param, grad, slots::<1>(state), |p, g, [sum]| {
            let g = g * scale + decay * p;
            let sum = (sum + initial) + g * g;
            (p - size * g / (sum.sqrt() + eps), [sum])
        });
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
        let (decay, eps) = (self.decay.of(shape) as f32, self.eps as f32);
        let (size, initial) = self.size_and_initial(step, lr);
        device::for_all(param, grad, scale, state, |p, g, [sum]| {
            let g = device::decayed(g, &p, decay);
            let sum = (sum + initial) + g.clone() * g.clone();
            (p - g * size / (sum.clone().sqrt() + eps), [sum])
        })
    }
}
