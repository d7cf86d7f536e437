//! `radam`: `torch.optim.RAdam`, with PyTorch's `decoupled_weight_decay`.

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction};
use kernels::formula::Moments;
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.RAdam`.
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
}

impl UpdateRule for RAdam {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let decay = self.decay.decay(self.weight_decay, shape);
        let rectification = self.rectification(step);
        let size = lr / bias_correction(self.betas[0], step);
        on.run(formulas::RAdam {
            moments: Moments::new(self.betas, lr, decay, self.decoupled_weight_decay),
            size: rectification.map_or(size, |by| size * by) as f32,
            rectified: rectification.is_some(),
            eps: self.eps as f32,
        })
    }
}
