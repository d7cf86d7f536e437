//! `rmsprop`: `torch.optim.RMSprop` (momentum, centred).

use super::{DecayOn, Optimizer, OptimizerConfig, device, lerp, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "rmsprop"`
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

impl OptimizerConfig for RmsProp {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Optimizer for RmsProp {
    fn slots(&self) -> &'static [&'static str] {
        match (self.momentum > 0.0, self.centered) {
            (false, false) => &["square_avg"],
            (true, false) => &["square_avg", "momentum_buffer"],
            (false, true) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "momentum_buffer", "grad_avg"],
        }
    }

    fn update(
        &self,
        _step: u64,
        lr: f64,
        scale: f32,
        shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        state: &mut [&mut [f32]],
    ) {
        let (lr, decay, eps) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32, self.eps as f32);
        let (keep, take, momentum) = (self.alpha as f32, (1.0 - self.alpha) as f32, self.momentum as f32);
        let square = move |p: f32, g: f32, square: f32| {
            let g = g * scale + decay * p;
            (g, square * keep + take * g * g)
        };
        match (self.momentum > 0.0, self.centered) {
            (false, false) => simd::for_each(param, grad, slots::<1>(state), |p, g, [s]| {
                let (g, s) = square(p, g, s);
                (p - lr * g / (s.sqrt() + eps), [s])
            }),
            (true, false) => simd::for_each(param, grad, slots::<2>(state), |p, g, [s, m]| {
                let (g, s) = square(p, g, s);
                let m = m * momentum + g / (s.sqrt() + eps);
                (p - lr * m, [s, m])
            }),
            (false, true) => simd::for_each(param, grad, slots::<2>(state), |p, g, [s, a]| {
                let (g, s) = square(p, g, s);
                let a = lerp(a, g, take);
                (p - lr * g / ((s - a * a).sqrt() + eps), [s, a])
            }),
            (true, true) => simd::for_each(param, grad, slots::<3>(state), |p, g, [s, m, a]| {
                let (g, s) = square(p, g, s);
                let a = lerp(a, g, take);
                let m = m * momentum + g / ((s - a * a).sqrt() + eps);
                (p - lr * m, [s, m, a])
            }),
        }
    }

    fn update_on_device(
        &self,
        _step: u64,
        lr: f64,
        scale: Tensor<1>,
        shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        let (lr, decay, eps) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32, self.eps as f32);
        let (keep, take, momentum) = (self.alpha as f32, (1.0 - self.alpha) as f32, self.momentum as f32);
        let square = |p: &Tensor<1>, g, square| {
            let g = device::decayed(g, p, decay);
            (g.clone(), device::add_square(square, g, keep, take))
        };
        let centred = |s: &Tensor<1>, a: &Tensor<1>| (s.clone() - a.clone() * a.clone()).sqrt() + eps;
        match (self.momentum > 0.0, self.centered) {
            (false, false) => device::for_all(param, grad, scale, state, |p, g, [s]| {
                let (g, s) = square(&p, g, s);
                (p - g * lr / (s.clone().sqrt() + eps), [s])
            }),
            (true, false) => device::for_all(param, grad, scale, state, |p, g, [s, m]| {
                let (g, s) = square(&p, g, s);
                let m = m * momentum + g / (s.clone().sqrt() + eps);
                (p - m.clone() * lr, [s, m])
            }),
            (false, true) => device::for_all(param, grad, scale, state, |p, g, [s, a]| {
                let (g, s) = square(&p, g, s);
                let a = device::lerp(a, g.clone(), take);
                (p - g * lr / centred(&s, &a), [s, a])
            }),
            (true, true) => device::for_all(param, grad, scale, state, |p, g, [s, m, a]| {
                let (g, s) = square(&p, g, s);
                let a = device::lerp(a, g.clone(), take);
                let m = m * momentum + g / centred(&s, &a);
                (p - m.clone() * lr, [s, m, a])
            }),
        }
    }
}
