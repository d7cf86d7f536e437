//! `adamax`: `torch.optim.Adamax`.

use super::{Optimizer, WeightDecay, bias_correction, device, lerp, simd, slots};
use burn::tensor::Tensor;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Adamax {
    pub betas: [f64; 2],
    pub eps: f64,
    #[serde(flatten)]
    pub decay: WeightDecay,
}

impl Optimizer for Adamax {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_inf"]
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
        let size = (lr / bias_correction(self.betas[0], step)) as f32;
        let eps = self.eps as f32;
        simd::for_each(param, grad, slots::<2>(state), |p, g, [m, top]| {
            let g = g * scale + decay * p;
            let m = lerp(m, g, take1);
            let (kept, new) = (top * keep2, g.abs() + eps);
            let top = if new > kept { new } else { kept };
            (p - size * m / top, [m, top])
        });
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
        let decay = self.decay.of(shape) as f32;
        let (take1, keep2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32);
        let size = (lr / bias_correction(self.betas[0], step)) as f32;
        let eps = self.eps as f32;
        device::for_all(param, grad, scale, state, |p, g, [m, top]| {
            let g = device::decayed(g, &p, decay);
            let m = device::lerp(m, g.clone(), take1);
            let top = (top * keep2).max_pair(g.abs() + eps);
            (p - m.clone() * size / top.clone(), [m, top])
        })
    }
}
