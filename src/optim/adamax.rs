//! `adamax`: `torch.optim.Adamax`.

use super::{DecayOn, Optimizer, OptimizerConfig, betas, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "adamax"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adamax {
    /// Learning rate.
    #[default = 2e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rates of the first moment and of the infinity norm.
    #[default([0.9, 0.999])]
    #[schemars(schema_with = "betas::<2>")]
    pub betas: [f64; 2],
    /// Added to the gradient's magnitude.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for Adamax {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Optimizer for Adamax {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
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
        let decay = self.decay.of(self.weight_decay, shape) as f32;
        let (take1, keep2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32);
        let size = (lr / bias_correction(self.betas[0], step)) as f32;
        let eps = self.eps as f32;
        simd::for_each(param, grad, slots::<2>(state), |p, g, [m, top]| {
            let g = g * scale + decay * p;
            let m = lerp(m, g, take1);
            let (kept, new) = (top * keep2, g.abs() + eps);
            let top = if new > kept { new } else { kept };
            (p - size * m / top, [m, top])
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
        let decay = self.decay.of(self.weight_decay, shape) as f32;
        let (take1, keep2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32);
        let size = (lr / bias_correction(self.betas[0], step)) as f32;
        let eps = self.eps as f32;
        device::for_all(param, grad, scale, state, |p, g, [m, top]| {
            let g = device::decayed(g, &p, decay);
            let m = device::lerp(m, g.clone(), take1);
            let top = (top * keep2).max_pair(g.abs() + eps);
            (p - m.clone() * size / top.clone(), [m, top])
        })
    }
}
