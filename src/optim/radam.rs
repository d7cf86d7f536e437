//! `radam`: `torch.optim.RAdam`, with PyTorch's `decoupled_weight_decay`.

use super::{Optimizer, WeightDecay, bias_correction, lerp, simd, slots};
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RAdam {
    pub betas: [f64; 2],
    pub eps: f64,
    pub decoupled_weight_decay: bool,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl RAdam {
    /// The variance rectification of this step; `None` while the variance is not tractable yet (the first steps).
    fn rectification(&self, step: u64) -> Option<f64> {
        let beta2 = self.betas[1];
        let limit = 2.0 / (1.0 - beta2) - 1.0;
        let rho = limit - 2.0 * step as f64 * beta2.powf(step as f64) / bias_correction(beta2, step);
        (rho > 5.0).then(|| {
            ((rho - 4.0) * (rho - 2.0) * limit / ((limit - 4.0) * (limit - 2.0) * rho)).sqrt()
                * bias_correction(beta2, step).sqrt()
        })
    }
}

impl Optimizer for RAdam {
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
        let decay = self.decay.of(shape);
        let (shrink, l2) =
            if self.decoupled_weight_decay { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
        let (take1, keep2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32);
        let take2 = (1.0 - self.betas[1]) as f32;
        let size = lr / bias_correction(self.betas[0], step);
        let eps = self.eps as f32;
        let moments = move |p: f32, g: f32, m: f32, v: f32| {
            let p = p * shrink;
            let g = g * scale + l2 * p;
            (p, lerp(m, g, take1), v * keep2 + take2 * g * g)
        };
        let state = slots::<2>(state);
        match self.rectification(step) {
            Some(rectified) => {
                let size = (size * rectified) as f32;
                simd::for_each(param, grad, state, |p, g, [m, v]| {
                    let (p, m, v) = moments(p, g, m, v);
                    (p - size * m / (v.sqrt() + eps), [m, v])
                });
            }
            None => {
                let size = size as f32;
                simd::for_each(param, grad, state, |p, g, [m, v]| {
                    let (p, m, v) = moments(p, g, m, v);
                    (p - size * m, [m, v])
                });
            }
        }
    }
}
