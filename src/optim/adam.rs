//! `adam` and `adamw`: `torch.optim.Adam` and `AdamW`, with AMSGrad. They differ in where the weight decay goes:
//! into the gradient (Adam), or straight off the parameter (AdamW).

use super::{Optimizer, WeightDecay, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adam {
    pub betas: [f64; 2],
    pub eps: f64,
    pub amsgrad: bool,
    /// AdamW: the decay does not pass through the moments. Implied by the name, so not printed.
    #[serde(skip)]
    pub decoupled: bool,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

/// What one step multiplies by.
struct Factors {
    shrink: f32,
    l2: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    size: f32,
    root: f32,
    eps: f32,
}

impl Adam {
    fn factors(&self, step: u64, lr: f64, shape: &[usize]) -> Factors {
        let decay = self.decay.of(shape);
        let (shrink, l2) =
            if self.decoupled { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
        Factors {
            shrink,
            l2,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            take2: (1.0 - self.betas[1]) as f32,
            size: (lr / bias_correction(self.betas[0], step)) as f32,
            root: bias_correction(self.betas[1], step).sqrt() as f32,
            eps: self.eps as f32,
        }
    }
}

impl Optimizer for Adam {
    fn slots(&self) -> &'static [&'static str] {
        if self.amsgrad { &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] } else { &["exp_avg", "exp_avg_sq"] }
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
        let Factors { shrink, l2, take1, keep2, take2, size, root, eps } = self.factors(step, lr, shape);
        let moments = move |p: f32, g: f32, m: f32, v: f32| {
            let p = p * shrink;
            let g = g * scale + l2 * p;
            (p, lerp(m, g, take1), v * keep2 + take2 * g * g)
        };
        if self.amsgrad {
            simd::for_each(param, grad, slots::<3>(state), |p, g, [m, v, top]| {
                let (p, m, v) = moments(p, g, m, v);
                let top = if v > top { v } else { top };
                (p - size * m / (top.sqrt() / root + eps), [m, v, top])
            });
        } else {
            simd::for_each(param, grad, slots::<2>(state), |p, g, [m, v]| {
                let (p, m, v) = moments(p, g, m, v);
                (p - size * m / (v.sqrt() / root + eps), [m, v])
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
        let Factors { shrink, l2, take1, keep2, take2, size, root, eps } = self.factors(step, lr, shape);
        let moments = |p: Tensor<1>, g, m, v| {
            let p = p * shrink;
            let g = device::decayed(g, &p, l2);
            (p, device::lerp(m, g.clone(), take1), device::add_square(v, g, keep2, take2))
        };
        if self.amsgrad {
            device::for_all(param, grad, scale, state, |p, g, [m, v, top]| {
                let (p, m, v) = moments(p, g, m, v);
                let top = top.max_pair(v.clone());
                (p - m.clone() * size / (top.clone().sqrt() / root + eps), [m, v, top])
            })
        } else {
            device::for_all(param, grad, scale, state, |p, g, [m, v]| {
                let (p, m, v) = moments(p, g, m, v);
                (p - m.clone() * size / (v.clone().sqrt() / root + eps), [m, v])
            })
        }
    }
}
