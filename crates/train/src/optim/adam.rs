//! `adam` and `adamw`: `torch.optim.Adam` and `AdamW`, with AMSGrad. They differ in how weight decay is applied: as a
//! penalty in the gradient (Adam), or directly to the parameter (AdamW).

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction};
use kernels::formula::Moments;
use kernels::formulas;
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

/// `torch.optim.Adam` and `torch.optim.AdamW`, which differ in how weight decay is applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-summaries" = {
    "adam": "`torch.optim.Adam`: weight decay is added to the gradient.",
    "adamw": "`torch.optim.AdamW`: weight decay shrinks the weights directly.",
}))]
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

impl<D: Decay> UpdateRule for Adam<D> {
    fn slots(&self) -> &'static [&'static str] {
        if self.amsgrad { &["exp_avg", "exp_avg_sq", "max_exp_avg_sq"] } else { &["exp_avg", "exp_avg_sq"] }
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let decay = self.decay.decay(self.weight_decay, shape);
        let factors = formulas::Adam {
            moments: Moments::new(self.betas, lr, decay, D::DECOUPLED),
            size: (lr / bias_correction(self.betas[0], step)) as f32,
            root: bias_correction(self.betas[1], step).sqrt() as f32,
            eps: self.eps as f32,
        };
        if self.amsgrad { on.run::<3, _>(factors) } else { on.run::<2, _>(factors) }
    }
}
