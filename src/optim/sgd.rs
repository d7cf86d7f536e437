//! `sgd`: `torch.optim.SGD` (momentum, dampening, Nesterov).

use super::{DecayOn, Optimizer, OptimizerConfig, device, simd, slots};
use crate::spec::Fields;
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "sgd"`
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
    /// Nesterov momentum.
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for Sgd {
    fn lr(&self) -> f64 {
        self.lr
    }

    fn check(&self, fields: &mut Fields<'_>) {
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            fields.problem("nesterov", "Nesterov momentum needs `momentum` above 0 and no `dampening`");
        }
    }
}

impl Sgd {
    /// Factors of the momentum buffer and of the gradient added to it.
    fn keep_and_take(&self, step: u64) -> (f32, f32) {
        // The first step sets the buffer to the undampened gradient, so it need not be zero before.
        if step == 1 { (0.0, 1.0) } else { (self.momentum as f32, (1.0 - self.dampening) as f32) }
    }
}

impl Optimizer for Sgd {
    fn slots(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum_buffer"] }
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
        let (lr, decay) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32);
        let momentum = self.momentum as f32;
        if self.momentum == 0.0 {
            return simd::for_each(param, grad, slots::<0>(state), |p, g, []| {
                (p - lr * (g * scale + decay * p), [])
            });
        }
        let buffer = slots::<1>(state);
        let (keep, take) = self.keep_and_take(step);
        if self.nesterov {
            simd::for_each(param, grad, buffer, |p, g, [m]| {
                let g = g * scale + decay * p;
                let m = m * keep + g * take;
                (p - lr * (g + momentum * m), [m])
            });
        } else {
            simd::for_each(param, grad, buffer, |p, g, [m]| {
                let m = m * keep + (g * scale + decay * p) * take;
                (p - lr * m, [m])
            });
        }
    }

    fn update_on_device(
        &self,
        step: u64,
        lr: f64,
        scale: Tensor<1>,
        shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let (lr, decay) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32);
        if self.momentum == 0.0 {
            return device::for_all(param, grad, scale, state, |p, g, []| {
                let g = device::decayed(g, &p, decay);
                (p - g * lr, [])
            });
        }
        let (keep, take) = self.keep_and_take(step);
        device::for_all(param, grad, scale, state, |p, g, [m]| {
            let g = device::decayed(g, &p, decay);
            let m = m * keep + g.clone() * take;
            let direction = if self.nesterov { g + m.clone() * self.momentum as f32 } else { m.clone() };
            (p - direction * lr, [m])
        })
    }
}
