//! `nadam`: `torch.optim.NAdam`, with PyTorch's `decoupled_weight_decay`.

use super::{DecayOn, Optimizer, OptimizerConfig, betas, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "nadam"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct NAdam {
    /// Learning rate.
    #[default = 2e-3]
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
    /// Decay of the momentum schedule.
    #[default = 4e-3]
    #[schemars(range(min = 0.0))]
    pub momentum_decay: f64,
    /// Decouple the weight decay, as in AdamW.
    pub decoupled_weight_decay: bool,
    /// L2 penalty, added to the gradient, or decoupled weight decay with `decoupled_weight_decay`.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for NAdam {
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
    by_grad: f32,
    by_avg: f32,
    correction: f32,
    eps: f32,
}

impl NAdam {
    /// The momentum of step `step`, counted from 1.
    fn mu(&self, step: u64) -> f64 {
        self.betas[0] * (1.0 - 0.5 * 0.96f64.powf(step as f64 * self.momentum_decay))
    }

    /// `mu(1) * … * mu(step)`. PyTorch keeps it as state. Here it is recomputed, which is cheap: after a few dozen
    /// factors the product is too small to affect `1 - product`.
    fn mu_product(&self, step: u64) -> f64 {
        let mut product = 1.0;
        for i in 1..=step {
            product *= self.mu(i);
            if product < 1e-20 {
                break;
            }
        }
        product
    }

    fn factors(&self, step: u64, lr: f64, shape: &[usize]) -> Factors {
        let decay = self.decay.of(self.weight_decay, shape);
        let (shrink, l2) =
            if self.decoupled_weight_decay { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
        let (mu, next, product) = (self.mu(step), self.mu(step + 1), self.mu_product(step));
        Factors {
            shrink,
            l2,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            take2: (1.0 - self.betas[1]) as f32,
            by_grad: (lr * (1.0 - mu) / (1.0 - product)) as f32,
            by_avg: (lr * next / (1.0 - product * next)) as f32,
            correction: bias_correction(self.betas[1], step) as f32,
            eps: self.eps as f32,
        }
    }
}

impl Optimizer for NAdam {
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
        let Factors { shrink, l2, take1, keep2, take2, by_grad, by_avg, correction, eps } =
            self.factors(step, lr, shape);
        simd::for_each(param, grad, slots::<2>(state), |p, g, [m, v]| {
            let p = p * shrink;
            let g = g * scale + l2 * p;
            let m = lerp(m, g, take1);
            let v = v * keep2 + take2 * g * g;
            let denom = (v / correction).sqrt() + eps;
            let p = p - by_grad * g / denom;
            (p - by_avg * m / denom, [m, v])
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
        let Factors { shrink, l2, take1, keep2, take2, by_grad, by_avg, correction, eps } =
            self.factors(step, lr, shape);
        device::for_all(param, grad, scale, state, |p, g, [m, v]| {
            let p = p * shrink;
            let g = device::decayed(g, &p, l2);
            let m = device::lerp(m, g.clone(), take1);
            let v = device::add_square(v, g.clone(), keep2, take2);
            let denom = (v.clone() / correction).sqrt() + eps;
            let p = p - g * by_grad / denom.clone();
            (p - m.clone() * by_avg / denom, [m, v])
        })
    }
}
