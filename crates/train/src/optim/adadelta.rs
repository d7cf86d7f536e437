//! `adadelta`: `torch.optim.Adadelta`.

use super::DecayOn;
use super::rule::{RuleTarget, UpdateRule};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.Adadelta`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adadelta {
    /// Factor of the update.
    #[default = 1.0]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rate of the running averages.
    #[default = 0.9]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub rho: f64,
    /// Added under both square roots.
    #[default = 1e-6]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl UpdateRule for Adadelta {
    fn slots(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
    }

    fn step<R: RuleTarget>(&self, _step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        on.run(formulas::Adadelta {
            lr: lr as f32,
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            keep: self.rho as f32,
            take: (1.0 - self.rho) as f32,
            eps: self.eps as f32,
        })
    }
}
