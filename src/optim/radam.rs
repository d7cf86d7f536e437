//! `radam`: `torch.optim.RAdam`, with PyTorch's `decoupled_weight_decay`.

use super::{DecayOn, Optimizer, OptimizerConfig, betas, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "radam"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct RAdam {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rates of the first and second moment.
    #[default([0.9, 0.999])]
    #[schemars(schema_with = "betas::<2>")]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Decouple the weight decay, as in AdamW.
    pub decoupled_weight_decay: bool,
    /// L2 penalty, added to the gradient, or decoupled weight decay with `decoupled_weight_decay`.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for RAdam {
    fn lr(&self) -> f64 {
        self.lr
    }
}

/// The factors of one step.
struct Factors {
    shrink: f32,
    l2: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    size: f32,
    /// Whether the update is divided by the root of the variance.
    rectified: bool,
    eps: f32,
}

impl RAdam {
    /// The variance rectification of this step; `None` in the first steps, where the variance is not tractable yet.
    fn rectification(&self, step: u64) -> Option<f64> {
        let beta2 = self.betas[1];
        let limit = 2.0 / (1.0 - beta2) - 1.0;
        let rho = limit - 2.0 * step as f64 * beta2.powf(step as f64) / bias_correction(beta2, step);
        (rho > 5.0).then(|| {
            ((rho - 4.0) * (rho - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * rho)).sqrt()
                * bias_correction(beta2, step).sqrt()
        })
    }

    fn factors(&self, step: u64, lr: f64, shape: &[usize]) -> Factors {
        let decay = self.decay.of(self.weight_decay, shape);
        let (shrink, l2) =
            if self.decoupled_weight_decay { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
        let rectification = self.rectification(step);
        let size = lr / bias_correction(self.betas[0], step);
        Factors {
            shrink,
            l2,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            take2: (1.0 - self.betas[1]) as f32,
            size: rectification.map_or(size, |by| size * by) as f32,
            rectified: rectification.is_some(),
            eps: self.eps as f32,
        }
    }
}

impl Optimizer for RAdam {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
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
        let Factors { shrink, l2, take1, keep2, take2, size, rectified, eps } = self.factors(step, lr, shape);
        let moments = move |p: f32, g: f32, m: f32, v: f32| {
            let p = p * shrink;
            let g = g * scale + l2 * p;
            (p, lerp(m, g, take1), v * keep2 + take2 * g * g)
        };
        let state = slots::<2>(state);
        if rectified {
            simd::for_each(param, grad, state, |p, g, [m, v]| {
                let (p, m, v) = moments(p, g, m, v);
                (p - size * m / (v.sqrt() + eps), [m, v])
            });
        } else {
            simd::for_each(param, grad, state, |p, g, [m, v]| {
                let (p, m, v) = moments(p, g, m, v);
                (p - size * m, [m, v])
            });
        }
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
        let Factors { shrink, l2, take1, keep2, take2, size, rectified, eps } = self.factors(step, lr, shape);
        device::for_all(param, grad, scale, state, |p, g, [m, v]| {
            let p = p * shrink;
            let g = device::decayed(g, &p, l2);
            let m = device::lerp(m, g.clone(), take1);
            let v = device::add_square(v, g, keep2, take2);
            let direction = m.clone() * size;
            let direction = if rectified { direction / (v.clone().sqrt() + eps) } else { direction };
            (p - direction, [m, v])
        })
    }
}
