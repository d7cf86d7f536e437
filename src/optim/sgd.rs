//! `sgd`: `torch.optim.SGD` (momentum, dampening, Nesterov).

use super::{Optimizer, WeightDecay, device, simd, slots};
use burn::tensor::Tensor;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sgd {
    pub momentum: f64,
    pub dampening: f64,
    pub nesterov: bool,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Sgd {
    /// Factors of the buffer and of the gradient that joins it.
    fn keep_and_take(&self, step: u64) -> (f32, f32) {
        // The first step sets the buffer to the gradient itself, not dampened; so it does not need to be zero.
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
        let (lr, decay) = (lr as f32, self.decay.of(shape) as f32);
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
        let (lr, decay) = (lr as f32, self.decay.of(shape) as f32);
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
