//! `rmsprop`: `torch.optim.RMSprop` (momentum, centred).

use super::DecayOn;
use super::rule::{RuleTarget, UpdateRule};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.RMSprop`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct RmsProp {
    /// Learning rate.
    #[default = 1e-2]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rate of the squared-gradient average.
    #[default = 0.99]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub alpha: f64,
    /// Added to the denominator.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Momentum factor.
    #[schemars(range(min = 0.0))]
    pub momentum: f64,
    /// Divide by the estimated variance instead of the second moment.
    pub centered: bool,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl UpdateRule for RmsProp {
    fn slots(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    fn step<R: RuleTarget>(&self, _step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let factors = formulas::RmsProp {
            lr: lr as f32,
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            eps: self.eps as f32,
            keep: self.alpha as f32,
            take: (1.0 - self.alpha) as f32,
            momentum: (self.momentum > 0.0).then_some(self.momentum as f32),
            centered: self.centered,
        };
        match UpdateRule::slots(self).len() {
            1 => on.run::<1, _>(factors),
            2 => on.run::<2, _>(factors),
            _ => on.run::<3, _>(factors),
        }
    }
}
