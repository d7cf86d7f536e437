//! `adan`: Xie et al. 2022 (arXiv 2208.06677), as burn-optim 0.22.1 has it: its `beta`s are one minus the paper's,
//! its weight decay is proximal unless `no_prox`. PyTorch has none.

use super::{Optimizer, WeightDecay, bias_correction, simd, slots};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adan {
    pub betas: [f64; 3],
    pub eps: f64,
    pub no_prox: bool,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Optimizer for Adan {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq", "exp_avg_diff", "neg_pre_grad"]
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
        let decay = lr * self.decay.of(shape);
        let (before, after) =
            if self.no_prox { ((1.0 - decay) as f32, 1.0) } else { (1.0, (1.0 + decay) as f32) };
        let lr = lr as f32;
        let [keep1, keep2, keep3] = self.betas.map(|b| b as f32);
        let [take1, take2, take3] = self.betas.map(|b| (1.0 - b) as f32);
        let [bc1, bc2] = [self.betas[0], self.betas[1]].map(|b| bias_correction(b, step) as f32);
        let root = bias_correction(self.betas[2], step).sqrt() as f32;
        let eps = self.eps as f32;
        // There is no previous gradient at the first step: the difference counts as zero.
        let differs = if step == 1 { 0.0 } else { 1.0 };
        simd::for_each(param, grad, slots::<4>(state), |p, g, [m, v, d, previous]| {
            let g = g * scale;
            let diff = differs * (g + previous);
            let look = g + keep2 * diff;
            let m = m * keep1 + take1 * g;
            let d = d * keep2 + take2 * diff;
            let v = v * keep3 + take3 * look * look;
            let denom = v.sqrt() / root + eps;
            let delta = m / bc1 / denom + keep2 * d / bc2 / denom;
            ((p * before - lr * delta) / after, [m, v, d, -g])
        });
    }
}
