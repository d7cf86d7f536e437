//! `adamax`: `torch.optim.Adamax`.

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.Adamax`.
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

impl UpdateRule for Adamax {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        on.run(formulas::Adamax {
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            size: (lr / bias_correction(self.betas[0], step)) as f32,
            eps: self.eps as f32,
        })
    }
}
