//! `adagrad`: `torch.optim.Adagrad`.

use super::{DecayOn, Optimizer, OptimizerConfig, device, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "adagrad"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adagrad {
    /// Learning rate.
    #[default = 1e-2]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// The rate is divided by 1 + (step - 1) x `lr_decay`.
    #[schemars(range(min = 0.0))]
    pub lr_decay: f64,
    /// Starting value of the sum of squared gradients.
    #[schemars(range(min = 0.0))]
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    #[default = 1e-10]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for Adagrad {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Adagrad {
    /// The decayed learning rate, and the value to add to the accumulator.
    fn size_and_initial(&self, step: u64, lr: f64) -> (f32, f32) {
        let size = (lr / (1.0 + (step - 1) as f64 * self.lr_decay)) as f32;
        // State starts as zeros; the initial value is added in the first step.
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
        let (decay, eps) = (self.decay.of(self.weight_decay, shape) as f32, self.eps as f32);
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
        let (decay, eps) = (self.decay.of(self.weight_decay, shape) as f32, self.eps as f32);
        let (size, initial) = self.size_and_initial(step, lr);
        device::for_all(param, grad, scale, state, |p, g, [sum]| {
            let g = device::decayed(g, &p, decay);
            let sum = (sum + initial) + g.clone() * g.clone();
            (p - g * size / (sum.clone().sqrt() + eps), [sum])
        })
    }
}
