//! `lion`: Chen et al. 2023 (arXiv 2302.06675), as in burn-optim 0.22.1 and the authors' code. PyTorch has none.

use super::{DecayOn, Optimizer, OptimizerConfig, betas, device, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "lion"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Lion {
    /// Learning rate.
    #[default = 1e-4]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Interpolation of the update, and decay rate of the momentum.
    #[default([0.9, 0.99])]
    #[schemars(schema_with = "betas::<2>")]
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for Lion {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Optimizer for Lion {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn update(
        &self,
        _step: u64,
        lr: f64,
        scale: f32,
        shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        state: &mut [&mut [f32]],
    ) {
        let shrink = (1.0 - lr * self.decay.of(self.weight_decay, shape)) as f32;
        let lr = lr as f32;
        let (keep1, take1) = (self.betas[0] as f32, (1.0 - self.betas[0]) as f32);
        let (keep2, take2) = (self.betas[1] as f32, (1.0 - self.betas[1]) as f32);
        simd::for_each(param, grad, slots::<1>(state), |p, g, [m]| {
            let g = g * scale;
            let direction = m * keep1 + g * take1;
            // Not `signum`, which is ±1 at ±0: a parameter without a gradient must not change.
            let sign = if direction > 0.0 {
                1.0
            } else if direction < 0.0 {
                -1.0
            } else {
                0.0
            };
            (p * shrink - lr * sign, [m * keep2 + g * take2])
        });
    }

    fn update_on_device(
        &self,
        _step: u64,
        lr: f64,
        scale: Tensor<1>,
        shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let shrink = (1.0 - lr * self.decay.of(self.weight_decay, shape)) as f32;
        let (keep1, take1) = (self.betas[0] as f32, (1.0 - self.betas[0]) as f32);
        let (keep2, take2) = (self.betas[1] as f32, (1.0 - self.betas[1]) as f32);
        device::for_all(param, grad, scale, state, |p, g, [m]| {
            let direction = m.clone() * keep1 + g.clone() * take1;
            let (up, down) = (direction.clone().greater_elem(0.0), direction.clone().lower_elem(0.0));
            let sign = direction.mask_fill(up, 1.0).mask_fill(down, -1.0);
            (p * shrink - sign * lr as f32, [m * keep2 + g * take2])
        })
    }
}
