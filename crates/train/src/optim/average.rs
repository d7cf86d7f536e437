//! Moving averages of weights: `torch.lerp`, over host slices and as tensor operations.

use super::device;
use burn::tensor::Tensor;
use kernels::formulas;

/// Moves each value of `average` towards that of `weights` by this `share` of the distance; 1 copies them.
///
/// Panics if the lengths differ.
pub fn average(average: &mut [f32], weights: &[f32], share: f32) {
    match share {
        1.0 => average.copy_from_slice(weights),
        share => formulas::average(average, weights, share),
    }
}

/// As [`average`], on a device.
pub fn average_on_device(average: Tensor<1>, weights: Tensor<1>, share: f32) -> Tensor<1> {
    if share == 1.0 { weights } else { device::lerp(average, weights, share) }
}
