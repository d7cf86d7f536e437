//! `lion`: Chen et al. 2023 (arXiv 2302.06675), as in burn-optim 0.22.1 and the authors' code. PyTorch has none.

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Chen et al. 2023, [arXiv 2302.06675](https://arxiv.org/abs/2302.06675). PyTorch has none.
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

impl UpdateRule for Lion {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }

    fn step<R: RuleTarget>(&self, _step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        on.run(formulas::Lion {
            lr: lr as f32,
            shrink: (1.0 - lr * self.decay.decay(self.weight_decay, shape)) as f32,
            keep: self.betas.map(|beta| beta as f32),
            take: self.betas.map(|beta| (1.0 - beta) as f32),
        })
    }
}
