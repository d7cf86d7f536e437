//! `sgd`: `torch.optim.SGD` (momentum, dampening, Nesterov).

use super::DecayOn;
use super::rule::{RuleTarget, UpdateRule};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `torch.optim.SGD`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Sgd {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Momentum factor.
    #[schemars(range(min = 0.0))]
    pub momentum: f64,
    /// Dampening of the momentum.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub dampening: f64,
    /// Nesterov momentum; needs `momentum` above 0 and `dampening` 0.
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl UpdateRule for Sgd {
    fn check(&self) -> Result<(), (&'static str, String)> {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            let why = "Nesterov momentum needs `momentum` above 0 and no `dampening`";
            return Err(("nesterov", why.to_owned()));
        }
        Ok(())
    }

    fn slots(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        // The first step sets the buffer to the undampened gradient, so it need not be zero before.
        let (keep, take) =
            if step == 1 { (0.0, 1.0) } else { (self.momentum as f32, (1.0 - self.dampening) as f32) };
        let factors = formulas::Sgd {
            lr: lr as f32,
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            keep,
            take,
            nesterov: self.nesterov.then_some(self.momentum as f32),
        };
        if self.momentum == 0.0 { on.run::<0, _>(factors) } else { on.run::<1, _>(factors) }
    }
}
