//! `nadam`: `torch.optim.NAdam`, with PyTorch's `decoupled_weight_decay`.

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction};
use kernels::formula::Moments;
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.NAdam`.
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
}

impl UpdateRule for NAdam {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let decay = self.decay.decay(self.weight_decay, shape);
        let (mu, next, product) = (self.mu(step), self.mu(step + 1), self.mu_product(step));
        on.run(formulas::NAdam {
            moments: Moments::new(self.betas, lr, decay, self.decoupled_weight_decay),
            by_grad: (lr * (1.0 - mu) / (1.0 - product)) as f32,
            by_avg: (lr * next / (1.0 - product * next)) as f32,
            correction: bias_correction(self.betas[1], step) as f32,
            eps: self.eps as f32,
        })
    }
}
