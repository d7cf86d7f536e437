//! `lamb`: You et al. 2019 (arXiv 1904.00962), as in burn-optim 0.22.1: an Adam update plus weight decay, scaled per
//! tensor by the ratio of the parameter's norm to the update's. PyTorch has none.

use super::device::{self, Whole};
use super::rule::{Host, OnDevice, RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction, clip, slots};
use kernels::formula::{Value, add_square, lerp};
use kernels::fused;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// You et al. 2019, [arXiv 1904.00962](https://arxiv.org/abs/1904.00962). PyTorch has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Lamb {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rates of the first and second moment.
    #[default([0.9, 0.999])]
    #[schemars(schema_with = "betas::<2>")]
    pub betas: [f64; 2],
    /// Added to the denominator.
    #[default = 1e-6]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Scale each tensor's update by the norm of the parameter over the norm of the update.
    #[default = true]
    pub trust_ratio: bool,
    /// Added to the Adam update, before the trust ratio.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

/// The factors of one step.
#[derive(Clone, Copy)]
struct Factors {
    decay: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
    bc1: f32,
    bc2: f32,
    eps: f32,
}

impl Lamb {
    fn factors(&self, step: u64, shape: &[usize]) -> Factors {
        let [bc1, bc2] = self.betas.map(|b| bias_correction(b, step) as f32);
        Factors {
            decay: self.decay.decay(self.weight_decay, shape) as f32,
            take1: (1.0 - self.betas[0]) as f32,
            keep2: self.betas[1] as f32,
            take2: (1.0 - self.betas[1]) as f32,
            bc1,
            bc2,
            eps: self.eps as f32,
        }
    }
}

impl Factors {
    /// The new moments.
    #[inline(always)]
    fn moments<V: Value>(self, g: V, [m, v]: [V; 2]) -> [V; 2] {
        [lerp(m, g.clone(), self.take1), add_square(v, g, self.keep2, self.take2)]
    }

    /// The update before the trust ratio.
    #[inline(always)]
    fn direction<V: Value>(self, p: &V, m: V, v: V) -> V {
        (m / self.bc1 / ((v / self.bc2).sqrt() + self.eps)).decayed(p, self.decay)
    }
}

impl UpdateRule for Lamb {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let factors = self.factors(step, shape);
        let host = |Host { scale, param, grad, state }: Host<'_, '_>| {
            fused::for_each(param, grad, slots::<2>(state), |p, g, moments| {
                (p, factors.moments(g * scale, moments))
            });
            let [m, v] = slots::<2>(state);
            let mut size = lr as f32;
            if self.trust_ratio {
                let mut update = clip::SumOfSquares::default();
                let mut block = [0.0f32; 1024];
                for ((p, m), v) in param.chunks(1024).zip(m.chunks_mut(1024)).zip(v.chunks_mut(1024)) {
                    let block = &mut block[..p.len()];
                    fused::for_each(block, p, [m, v], |_, p, [m, v]| (factors.direction(&p, m, v), [m, v]));
                    update.add(block);
                }
                let (of_param, of_update) = (clip::global_norm([&*param]), update.norm());
                if of_param > 0.0 && of_update > 0.0 {
                    size = (lr * of_param / of_update) as f32;
                }
            }
            fused::for_each(param, grad, [m, v], |p, _, [m, v]| {
                (p - size * factors.direction(&p, m, v), [m, v])
            });
        };
        let device = |OnDevice { scale, param, grad, state }: OnDevice<'_>| {
            device::for_all(param, grad, scale, state, |p, g, moments| {
                let [m, v] = factors.moments(Whole(g), moments.map(Whole));
                let direction = factors.direction(&Whole(p.clone()), m.clone(), v.clone()).0;
                let (m, v) = (m.0, v.0);
                if !self.trust_ratio {
                    return (p - direction * lr as f32, [m, v]);
                }
                let (of_param, of_update) = (device::norm(p.clone()), device::norm(direction.clone()));
                let size = of_param.clone() * lr / of_update.clone();
                (p - direction * device::ratio_or(size, [of_param, of_update], lr as f32), [m, v])
            })
        };
        on.either(host, device)
    }
}
