//! Losses, with PyTorch's definitions and mean reduction.

use crate::data::{FieldFacts, FieldKind};
use crate::error::Error;
use crate::models::{Target, cross_entropy};
use burn::tensor::Tensor;

/// The loss that training minimises.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(tag = "name", rename_all = "kebab-case")]
pub enum Loss {
    /// `torch.nn.functional.cross_entropy` over class indices; `label_smoothing` in `[0, 1)`.
    CrossEntropy { label_smoothing: f64 },
    /// `torch.nn.functional.mse_loss`: mean over all elements.
    Mse,
}

impl Loss {
    /// `output` is `[rows, outputs]`; `target` has one index per row, or as many floats as `output`. Returns `[1]`.
    pub fn of(&self, output: Tensor<2>, target: Target) -> Tensor<1> {
        match self {
            Loss::CrossEntropy { label_smoothing } => {
                cross_entropy(output, target.flat_index(), *label_smoothing)
            }
            Loss::Mse => {
                let target = target.rows();
                let difference = output - target;
                (difference.clone() * difference).mean()
            }
        }
    }

    /// Checks the loss against the targets of the opened data set, which may be unknown when the spec is read.
    ///
    /// # Errors
    /// Exit code 78: numbers with cross-entropy, or classes with the mean squared error.
    pub fn fits(&self, target: &FieldFacts) -> Result<(), Error> {
        match (self, target.kind) {
            (Loss::CrossEntropy { .. }, FieldKind::Float) => {
                Err(Error::spec("cross-entropy requires class targets, but the targets are numbers")
                    .hint("set `loss = \"mse\"` in `[train]`"))
            }
            (Loss::Mse, FieldKind::Index(classes)) => Err(Error::spec(format!(
                "mse requires numbers as targets, but the data set has {classes} classes"
            ))
            .hint("set `loss = \"cross-entropy\"` in `[train]`")),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{FieldData, HostField};
    use burn::tensor::Device;

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
            let value = Loss::CrossEntropy { label_smoothing: smoothing }.of(logits.clone(), target);
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
        let loss = Loss::Mse.of(output, Target::from_host(&field, 2, &device)).into_scalar::<f32>();
        assert_eq!(loss, 1.25);
    }
}
