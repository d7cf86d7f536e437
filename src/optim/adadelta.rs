//! `adadelta`: `torch.optim.Adadelta`.

use super::{DecayOn, Optimizer, OptimizerConfig, device, simd, slots};
use burn::tensor::Tensor;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `[optimizer] name = "adadelta"`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adadelta {
    /// Factor of the update.
    #[default = 1.0]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rate of the running averages.
    #[default = 0.9]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub rho: f64,
    /// Added under both square roots.
    #[default = 1e-6]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// L2 penalty, added to the gradient.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl OptimizerConfig for Adadelta {
    fn lr(&self) -> f64 {
        self.lr
    }
}

impl Optimizer for Adadelta {
    fn slots(&self) -> &'static [&'static str] {
        &["square_avg", "acc_delta"]
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
        let (lr, decay) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32);
        let (keep, take, eps) = (self.rho as f32, (1.0 - self.rho) as f32, self.eps as f32);
        simd::for_each(param, grad, slots::<2>(state), |p, g, [square, acc]| {
            let g = g * scale + decay * p;
            let square = square * keep + take * g * g;
            let delta = (acc + eps).sqrt() / (square + eps).sqrt() * g;
            let acc = acc * keep + take * delta * delta;
            (p - lr * delta, [square, acc])
        });
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
        let (lr, decay) = (lr as f32, self.decay.of(self.weight_decay, shape) as f32);
        let (keep, take, eps) = (self.rho as f32, (1.0 - self.rho) as f32, self.eps as f32);
        device::for_all(param, grad, scale, state, |p, g, [square, acc]| {
            let g = device::decayed(g, &p, decay);
            let square = device::add_square(square, g.clone(), keep, take);
            let delta = (acc.clone() + eps).sqrt() / (square.clone() + eps).sqrt() * g;
            let acc = device::add_square(acc, delta.clone(), keep, take);
            (p - delta * lr, [square, acc])
        })
    }
}
