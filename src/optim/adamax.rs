//! `adamax`: `torch.optim.Adamax`.

use super::elementwise::{Formula, Value, lerp};
use super::rule::{Run, UpdateRule};
use super::{DecayOn, betas, bias_correction};
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

    fn step<R: Run>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        on.run(Factors {
            decay: self.decay.of(self.weight_decay, shape) as f32,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            size: (lr / bias_correction(self.betas[0], step)) as f32,
            eps: self.eps as f32,
        })
    }
}

#[derive(Clone, Copy)]
struct Factors {
    decay: f32,
    take1: f32,
    keep2: f32,
    size: f32,
    eps: f32,
}

impl Formula<2> for Factors {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m, top]: [V; 2]) -> (V, [V; 2]) {
        let g = g.decayed(&p, self.decay);
        let m = lerp(m, g.clone(), self.take1);
        let top = (top * self.keep2).max(g.abs() + self.eps);
        (p - m.clone() * self.size / top.clone(), [m, top])
    }
}
