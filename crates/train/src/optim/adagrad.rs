//! `adagrad`: `torch.optim.Adagrad`.

use super::DecayOn;
use super::rule::{RuleTarget, UpdateRule};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.Adagrad`.
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

impl UpdateRule for Adagrad {
    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        on.run(formulas::Adagrad {
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            size: (lr / (1.0 + (step - 1) as f64 * self.lr_decay)) as f32,
            // State starts as zeros; the initial value is added in the first step.
            initial: if step == 1 { self.initial_accumulator_value as f32 } else { 0.0 },
            eps: self.eps as f32,
        })
    }
}
