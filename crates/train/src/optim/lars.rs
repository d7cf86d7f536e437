//! `lars`: You et al. 2017 (arXiv 1708.03888), SGD with momentum and a learning rate per layer, in the form of the
//! MLPerf ResNet reference: tensors with fewer than two dimensions (biases, norms) take plain SGD with momentum.
//! Neither PyTorch nor burn-optim has it.

use super::rule::{Host, OnDevice, RuleTarget, UpdateRule};
use super::{DecayOn, clip, device, slots};
use kernels::fused;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// You et al. 2017, [arXiv 1708.03888](https://arxiv.org/abs/1708.03888), in the form of the MLPerf ResNet reference:
/// tensors with fewer than two dimensions take plain SGD with momentum. PyTorch has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Lars {
    /// Learning rate.
    #[default = 0.1]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Momentum factor.
    #[default = 0.9]
    #[schemars(range(min = 0.0))]
    pub momentum: f64,
    /// Factor of each tensor's learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub trust_coefficient: f64,
    /// Added to the denominator of each tensor's rate.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl Lars {
    /// The factor of this tensor's learning rate.
    fn ratio(&self, shape: &[usize], decay: f64, param: &[f32], grad: &[f32], scale: f32) -> f64 {
        if shape.len() < 2 {
            return 1.0;
        }
        let (p, g) = (clip::global_norm([param]), clip::global_norm([grad]) * f64::from(scale.abs()));
        if p > 0.0 && g > 0.0 { self.trust_coefficient * p / (g + decay * p + self.eps) } else { 1.0 }
    }
}

impl UpdateRule for Lars {
    fn slots(&self) -> &'static [&'static str] {
        &["momentum_buffer"]
    }

    fn step<R: RuleTarget>(&self, _step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let decay = self.decay.decay(self.weight_decay, shape);
        let momentum = self.momentum as f32;
        let host = |Host { scale, param, grad, state }: Host<'_, '_>| {
            let local = (lr * self.ratio(shape, decay, param, grad, scale)) as f32;
            let decay = decay as f32;
            fused::for_each(param, grad, slots::<1>(state), |p, g, [m]| {
                let m = m * momentum + local * (g * scale + decay * p);
                (p - m, [m])
            });
        };
        let device = |OnDevice { scale, param, grad, state }: OnDevice<'_>| {
            device::for_all(param, grad, scale, state, |p, g, [m]| {
                let direction = device::decayed(g.clone(), &p, decay as f32);
                let step = if shape.len() < 2 {
                    direction * lr as f32
                } else {
                    let (of_param, of_grad) = (device::norm(p.clone()), device::norm(g));
                    let whole = of_grad.clone() + of_param.clone() * decay + self.eps;
                    let local = of_param.clone() * (lr * self.trust_coefficient) / whole;
                    direction * device::ratio_or(local, [of_param, of_grad], lr as f32)
                };
                let m = m * momentum + step;
                (p - m.clone(), [m])
            })
        };
        on.either(host, device)
    }
}
