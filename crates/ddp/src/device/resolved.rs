//! Resolves a tensor to its memory, below Burn's queue of operations waiting for fusion.

use burn::backend::Cube;
use burn::tensor::Tensor;
use burn_cubecl::CubeBackend;
use burn_cubecl::tensor::CubeTensor;

/// The memory of a flat float tensor on a CubeCL device. On return, the operations that compute it have been passed to
/// the device's thread.
///
/// # Errors
/// Why it has no separate memory: a bug.
pub(super) fn resolved(tensor: &Tensor<1>) -> Result<CubeTensor, &'static str> {
    let fused = tensor.clone().try_into_primitive::<Cube>().map_err(|_| "it is not on a CubeCL device")?;
    // Runs the operations in fusion's queue that the value depends on.
    let client = fused.client.clone();
    let resolved = client.resolve_tensor_float::<CubeBackend>(fused);
    if resolved.is_contiguous() { Ok(resolved) } else { Err("it is not contiguous") }
}

#[cfg(all(test, feature = "wgpu"))]
mod on_wgpu {
    use super::*;
    use crate::device::testing;
    use burn::tensor::{Device, TensorData};

    /// Results of fused kernels, of a slice that does not start at the beginning of its memory, and of a concatenation.
    fn flat(device: &Device) -> [Tensor<1>; 3] {
        let values: Vec<f32> = (0..48).map(|i| (i as f32 * 0.73).sin()).collect();
        let x = Tensor::<1>::from_data(TensorData::new(values, [48]), device);
        let fused = x.clone() * 2.0 + x.clone().abs();
        let part = (x.clone() + 1.0).narrow(0, 17, 12);
        let joined =
            Tensor::cat(vec![fused.clone().reshape([6, 8]).transpose().reshape([48]), part.clone()], 0);
        [fused, part, joined]
    }

    #[test]
    fn the_memory_of_a_tensor_contains_its_computed_values() {
        let Some(device) = testing::wgpu() else { return };
        for (host, there) in flat(&Device::flex()).into_iter().zip(flat(&device)) {
            let memory = resolved(&there).unwrap();
            let expected = host.into_data().try_into_vec::<f32>().unwrap();
            let bytes = memory.client.read_one(memory.handle.clone()).unwrap();
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes[..4 * expected.len()]);
            let gap = got.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(gap <= 1e-6, "{got:?}\n{expected:?}");
        }
    }

    #[test]
    fn tensors_without_their_own_memory_are_rejected() {
        let Some(device) = testing::wgpu() else { return };
        let refused = |tensor: Tensor<1>| resolved(&tensor).err().unwrap();
        let one = |device: &Device| Tensor::<1>::from_data([1.0], device);
        assert_eq!(refused(one(&Device::flex())), "it is not on a CubeCL device");
        assert_eq!(refused(one(&device).expand([4])), "it is not contiguous");
    }
}
