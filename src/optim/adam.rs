//! `adam` and `adamw`: `torch.optim.Adam` and `AdamW`, with AMSGrad. They differ in how weight decay is applied: as a
//! penalty in the gradient (Adam), or directly to the parameter (AdamW).

use super::{DecayOn, Optimizer, OptimizerConfig, betas, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::fmt;
use std::marker::PhantomData;

/// How weight decay is applied.
pub trait Decay: fmt::Debug + Clone + Default + PartialEq + JsonSchema + Send + Sync + 'static {
    /// Whether it bypasses the moments.
    const DECOUPLED: bool;
    /// PyTorch's default.
    const WEIGHT_DECAY: f64;
}

/// As a penalty in the gradient: Adam.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct Coupled;

/// Directly to the parameter: AdamW.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema)]
pub struct Decoupled;

impl Decay for Coupled {
    const DECOUPLED: bool = false;
    const WEIGHT_DECAY: f64 = 0.0;
}

impl Decay for Decoupled {
    const DECOUPLED: bool = true;
    const WEIGHT_DECAY: f64 = 1e-2;
}

/// `[optimizer] name = "adam"` and `"adamw"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adam<D: Decay> {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rates of the first and second moment.
    #[default([0.9, 0.999])]
    #[schemars(schema_with = "betas::<2>")]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Use the largest second moment so far.
    pub amsgrad: bool,
    /// L2 penalty, added to the gradient (`adam`), or decoupled weight decay (`adamw`).
    #[default(D::WEIGHT_DECAY)]
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
    #[serde(skip)]
    pub(super) kind: PhantomData<D>,
}

impl<D: Decay> OptimizerConfig for Adam<D> {
    fn lr(&self) -> f64 {
        self.lr
    }
}

/// The factors of one step.
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

impl<D: Decay> Adam<D> {
    fn factors(&self, step: u64, lr: f64, shape: &[usize]) -> Factors {
        let decay = self.decay.of(self.weight_decay, shape);
        let (shrink, l2) = if D::DECOUPLED { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
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

impl<D: Decay> Optimizer for Adam<D> {
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
