//! `adagrad`: `torch.optim.Adagrad`.

use super::{Optimizer, WeightDecay, simd, slots};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adagrad {
    pub lr_decay: f64,
    pub initial_accumulator_value: f64,
    pub eps: f64,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Optimizer for Adagrad {
    fn slots(&self) -> &'static [&'static str] {
        &["sum"]
    }

    fn update(
        &self,
        step: u64,
        lr: f64,
        scale: f32,
        shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        state: &mut [&mut [f32]],
    ) {
        let decay = self.decay.of(shape) as f32;
        let size = (lr / (1.0 + (step - 1) as f64 * self.lr_decay)) as f32;
        // State comes as zeros; the initial value joins at the first step.
        let initial = if step == 1 { self.initial_accumulator_value as f32 } else { 0.0 };
        let eps = self.eps as f32;
        simd::for_each(param, grad, slots::<1>(state), |p, g, [sum]| {
            let g = g * scale + decay * p;
            let sum = (sum + initial) + g * g;
            (p - size * g / (sum.sqrt() + eps), [sum])
        });
    }
}
