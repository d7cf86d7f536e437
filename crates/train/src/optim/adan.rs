//! `adan`: Xie et al. 2022 (arXiv 2208.06677), as in burn-optim 0.22.1: `betas` are one minus the paper's, and weight
//! decay is proximal unless `no_prox`. PyTorch has none.

use super::rule::{RuleTarget, UpdateRule};
use super::{DecayOn, betas, bias_correction};
use kernels::formulas;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// Xie et al. 2022, [arXiv 2208.06677](https://arxiv.org/abs/2208.06677). PyTorch has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct Adan {
    /// Learning rate.
    #[default = 1e-3]
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Decay rates of the gradient, of its difference and of the second moment: one minus those of the paper.
    #[default([0.98, 0.92, 0.99])]
    #[schemars(schema_with = "betas::<3>")]
    pub betas: [f64; 3],
    /// Added to the denominator.
    #[default = 1e-8]
    #[schemars(range(min = 0.0))]
    pub eps: f64,
    /// Multiply the parameter by 1 - `lr` x `weight_decay` before the update instead of dividing after it.
    pub no_prox: bool,
    /// Weight decay, proximal unless `no_prox`.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Which parameters get weight decay.
    pub decay: DecayOn,
}

impl UpdateRule for Adan {
    fn slots(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq", "exp_avg_diff", "neg_pre_grad"]
    }

    fn step<R: RuleTarget>(&self, step: u64, lr: f64, shape: &[usize], on: R) -> R::Updated {
        let decay = lr * self.decay.decay(self.weight_decay, shape);
        let (before, after) =
            if self.no_prox { ((1.0 - decay) as f32, 1.0) } else { (1.0, (1.0 + decay) as f32) };
        on.run(formulas::Adan {
            before,
            after,
            lr: lr as f32,
            keep: self.betas.map(|b| b as f32),
            take: self.betas.map(|b| (1.0 - b) as f32),
            bc1: bias_correction(self.betas[0], step) as f32,
            bc2: bias_correction(self.betas[1], step) as f32,
            root: bias_correction(self.betas[2], step).sqrt() as f32,
            eps: self.eps as f32,
            // The first step has no previous gradient; the difference counts as zero.
            differs: if step == 1 { 0.0 } else { 1.0 },
        })
    }
}
