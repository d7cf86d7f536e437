//! `lamb`: You et al. 2019 (arXiv 1904.00962), as burn-optim 0.22.1 has it: an Adam update, with decay added, scaled
//! per tensor by the ratio of the parameter's norm to the update's. PyTorch has none.

use super::{Optimizer, WeightDecay, bias_correction, clip, lerp, simd, slots};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lamb {
    pub betas: [f64; 2],
    pub eps: f64,
    pub trust_ratio: bool,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Optimizer for Lamb {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
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
        let (take1, keep2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32);
        let take2 = (1.0 - self.betas[1]) as f32;
        let [bc1, bc2] = self.betas.map(|b| bias_correction(b, step) as f32);
        let eps = self.eps as f32;
        let direction = move |p: f32, m: f32, v: f32| m / bc1 / ((v / bc2).sqrt() + eps) + decay * p;

        simd::for_each(param, grad, slots::<2>(state), |p, g, [m, v]| {
            let g = g * scale;
            (p, [lerp(m, g, take1), v * keep2 + take2 * g * g])
        });
        let [m, v] = slots::<2>(state);
        let mut size = lr as f32;
        if self.trust_ratio {
            let mut update = clip::SumOfSquares::default();
            let mut block = [0.0f32; 1024];
            for ((p, m), v) in param.chunks(1024).zip(m.chunks_mut(1024)).zip(v.chunks_mut(1024)) {
                let block = &mut block[..p.len()];
                simd::for_each(block, p, [m, v], |_, p, [m, v]| (direction(p, m, v), [m, v]));
                update.add(block);
            }
            let (of_param, of_update) = (clip::global_norm([&*param]), update.norm());
            if of_param > 0.0 && of_update > 0.0 {
                size = (lr * of_param / of_update) as f32;
            }
        }
        simd::for_each(param, grad, [m, v], |p, _, [m, v]| (p - size * direction(p, m, v), [m, v]));
    }
}
