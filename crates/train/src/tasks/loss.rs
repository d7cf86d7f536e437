//! Losses, with PyTorch's definitions and mean reduction.

use crate::models::{Target, cross_entropy};
use base::error::{Error, Result};
use burn::tensor::Tensor;
use data::{FieldFacts, FieldKind};
use std::fmt;

/// A loss of outputs and targets, `[loss] name = "…"`. It is its own config: its fields are the keys of the table.
pub trait Loss: Send + Sync + 'static {
    /// The mean loss `[1]` over the rows of `outputs`, `[rows, outputs]`, in f32; there is a row per sample, or per token. `target`
    /// has one index per row, or as many numbers as the data set says. Rows of targets that are not trained are left out before.
    fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1>;

    /// Checks that the loss takes the targets of the opened data set.
    ///
    /// # Errors
    /// It does not ([`Error::spec`]: exit 78).
    fn fits(&self, _target: &FieldFacts) -> Result<()> {
        Ok(())
    }
}

/// The losses of `train.loss`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum StandardLoss {
    /// `torch.nn.functional.cross_entropy` over class indices.
    CrossEntropy {
        /// In `[0, 1)`.
        label_smoothing: f64,
    },
    /// `torch.nn.functional.mse_loss`: mean over all elements.
    Mse,
}

impl Loss for StandardLoss {
    fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1> {
        match self {
            StandardLoss::CrossEntropy { label_smoothing } => {
                cross_entropy(outputs, target.flat_index(), *label_smoothing)
            }
            StandardLoss::Mse => {
                let difference = outputs - target.rows();
                (difference.clone() * difference).mean()
            }
        }
    }

    /// Numbers do not fit cross-entropy, or classes the mean squared error.
    fn fits(&self, target: &FieldFacts) -> Result<()> {
        match (self, target.kind) {
            (StandardLoss::CrossEntropy { .. }, FieldKind::Float) => {
                Err(Error::spec("cross-entropy requires class targets, but the targets are numbers")
                    .hint("set `loss = \"mse\"` in `[train]`"))
            }
            (StandardLoss::Mse, FieldKind::Index(classes)) => Err(Error::spec(format!(
                "mse requires numbers as targets, but the data set has {classes} classes"
            ))
            .hint("set `loss = \"cross-entropy\"` in `[train]`")),
            _ => Ok(()),
        }
    }
}

/// For the plan.
impl fmt::Display for StandardLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandardLoss::CrossEntropy { label_smoothing: 0.0 } => f.write_str("cross-entropy"),
            StandardLoss::CrossEntropy { label_smoothing } => {
                write!(f, "cross-entropy, label smoothing {label_smoothing}")
            }
            StandardLoss::Mse => f.write_str("mean squared error"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;
    use data::{FieldData, HostField};

    /// `F.cross_entropy(logits, [1, 0], label_smoothing=s)` and its gradient, from PyTorch 2.15.
    #[test]
    fn cross_entropy_equals_pytorch_with_and_without_smoothing() {
        let device = Device::flex().autodiff();
        for (smoothing, loss, gradient) in [
            (
                0.0,
                1.500_510_3,
                [0.129_748_24, -0.147_307_72, 0.017_559_52, -0.464_745_28, 0.035_254_72, 0.429_490_54],
            ),
            (
                0.1,
                1.525_510_3,
                [0.113_081_57, -0.113_974_39, 0.000_892_85, -0.431_411_95, 0.018_588_06, 0.412_823_86],
            ),
        ] {
            let logits =
                Tensor::<2>::from_floats([[1.0, 2.0, -1.0], [0.5, 0.5, 3.0]], &device).require_grad();
            let labels = HostField { shape: Vec::new(), data: FieldData::Index(vec![1, 0]) };
            let target = Target::from_host(&labels, 2, &device);
            let value = StandardLoss::CrossEntropy { label_smoothing: smoothing }.of(logits.clone(), target);
            let got: f32 = value.clone().inner().into_scalar::<f32>();
            assert!((got - loss).abs() < 1e-6, "{got} against {loss}");
            let grads = value.backward();
            let found = logits.grad(&grads).unwrap().into_data().try_into_vec::<f32>().unwrap();
            for (a, b) in found.iter().zip(gradient) {
                assert!((a - b).abs() < 1e-6, "{found:?}");
            }
        }
    }

    #[test]
    fn mse_is_the_mean_over_all_elements() {
        let device = Device::flex();
        let output = Tensor::<2>::from_floats([[1.0, 2.0], [3.0, 5.0]], &device);
        let field = HostField { shape: vec![2], data: FieldData::Float(vec![1.0, 0.0, 3.0, 4.0]) };
        let loss = StandardLoss::Mse.of(output, Target::from_host(&field, 2, &device)).into_scalar::<f32>();
        assert_eq!(loss, 1.25);
    }
}
