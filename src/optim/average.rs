//! Moving averages of weights: `torch.lerp`, over host slices and as tensor operations.

use super::elementwise::lerp;
use super::simd::for_each;
use burn::tensor::Tensor;

/// Moves each value of `average` towards that of `weights` by this `share` of the distance; 1 copies them.
///
/// Panics if the lengths differ.
pub fn average(average: &mut [f32], weights: &[f32], share: f32) {
    match share {
        1.0 => average.copy_from_slice(weights),
        share => for_each(average, weights, [], |average, weight, []| (lerp(average, weight, share), [])),
    }
}

/// As [`average`], on a device.
pub fn average_on_device(average: Tensor<1>, weights: Tensor<1>, share: f32) -> Tensor<1> {
    if share == 1.0 { weights } else { lerp(average, weights, share) }
}
