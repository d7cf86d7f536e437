//! `rmsprop`: `torch.optim.RMSprop` (momentum, centred).

use super::DecayOn;
use super::elementwise::{Formula, Value, add_square, lerp};
use super::rule::{Run, UpdateRule};
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

    fn step<R: Run>(&self, _step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let factors = Factors {
            lr: lr as f32,
            decay: self.decay.of(self.weight_decay, shape) as f32,
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

#[derive(Clone, Copy)]
struct Factors {
    lr: f32,
    decay: f32,
    eps: f32,
    keep: f32,
    take: f32,
    momentum: Option<f32>,
    centered: bool,
}

/// The state of `slots`: the average of squares, the momentum buffer if there is one, the average of gradients if
/// centred.
impl<const N: usize> Formula<N> for Factors {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, mut state: [V; N]) -> (V, [V; N]) {
        let g = g.decayed(&p, self.decay);
        state[0] = add_square(state[0].clone(), g.clone(), self.keep, self.take);
        let mut variance = state[0].clone();
        if self.centered {
            let average = lerp(state[N - 1].clone(), g.clone(), self.take);
            state[N - 1] = average.clone();
            variance = variance - average.clone() * average;
        }
        let denom = variance.sqrt() + self.eps;
        let Some(momentum) = self.momentum else { return (p - g * self.lr / denom, state) };
        state[1] = state[1].clone() * momentum + g / denom;
        (p - state[1].clone() * self.lr, state)
    }
}
