//! Losses, with PyTorch's definitions and mean reduction.

use crate::models::Target;
use crate::plan::LossPlan;
use burn::tensor::Tensor;
use burn::tensor::activation::log_softmax;

/// What training minimises.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// `torch.nn.functional.cross_entropy` over class indices; `label_smoothing` in `[0, 1)`.
    CrossEntropy { label_smoothing: f64 },
    /// `torch.nn.functional.mse_loss`: mean over all elements.
    Mse,
}

impl From<&LossPlan> for Loss {
    fn from(plan: &LossPlan) -> Self {
        match *plan {
            LossPlan::CrossEntropy { label_smoothing } => Loss::CrossEntropy { label_smoothing },
            LossPlan::Mse => Loss::Mse,
        }
    }
}

impl Loss {
    /// `output` `[rows, outputs]`; one index a row, or as many float targets as outputs. Returns `[1]`.
    pub fn of(&self, output: Tensor<2>, target: Target) -> Tensor<1> {
        match self {
            Loss::CrossEntropy { label_smoothing } => cross_entropy(output, target, *label_smoothing),
            Loss::Mse => {
                let target = target.rows();
                let difference = output - target;
                (difference.clone() * difference).mean()
            }
        }
    }
}

/// `(1 - s) * nll + s * mean over classes of -log p`, averaged over rows.
fn cross_entropy(logits: Tensor<2>, target: Target, smoothing: f64) -> Tensor<1> {
    let [rows, _] = logits.dims();
    let log_p = log_softmax(logits, 1);
    let index = target.flat_index().reshape([rows, 1]);
    let nll = log_p.clone().gather(1, index).mean().neg();
    if smoothing == 0.0 {
        return nll;
    }
    nll * (1.0 - smoothing) - log_p.mean() * smoothing
}
