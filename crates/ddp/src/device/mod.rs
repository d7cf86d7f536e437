//! The device that a rank computes on: the CPU, or one accelerator of the machine.
//!
//! Burn selects its backend by device at run time. There are two here: `Flex` computes in host memory, where our own
//! kernels and optimizers work on slices; `Cube` is every CubeCL device (CUDA, wgpu), which has its own memory and
//! executes queued operations in order while the host continues. [`is_host`] says which one a tensor is on.

#[cfg(feature = "cuda")]
mod cuda;
mod device_spec;
#[cfg(feature = "cuda")]
mod exact;
mod find;
#[cfg(feature = "cubecl-devices")]
mod kernel_cache;
#[cfg(all(test, feature = "nccl"))]
mod nccl_tests;
mod peak;
mod precision;
mod readback;
#[cfg(any(feature = "cuda", all(test, feature = "wgpu")))]
mod resolved;
#[cfg(feature = "wgpu")]
#[doc(hidden)]
pub mod testing;
mod tracked;
#[cfg(feature = "wgpu")]
mod wgpu;

#[cfg(feature = "cuda")]
pub use cuda::slice;
pub use device_spec::DeviceSpec;
#[cfg(all(test, feature = "cuda"))]
use exact::listed;
#[cfg(all(test, feature = "nccl"))]
use find::among;
pub use find::{
    available, count, cuda_devices, of_rank, supports_precision, unusable_cuda_devices, wgpu_devices,
};
#[cfg(feature = "cubecl-devices")]
pub use kernel_cache::keep_kernels;
pub use peak::peak_flops_per_s;
pub use precision::Precision;
pub use readback::{Readback, read, send};
pub(crate) use tracked::Differentiable;
pub use tracked::{Gradient, Tracked};

use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device};
use std::cell::Cell;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Where a model computes, and in which precision.
#[derive(Clone, Debug)]
pub struct Compute {
    /// Without autodiff.
    pub device: Device,
    /// Type of the forward and backward passes. Parameters are f32.
    pub dtype: DType,
}

impl Compute {
    /// f32 in host memory.
    pub fn host() -> Self {
        Self { device: Device::flex(), dtype: DType::F32 }
    }
}

/// A device of this machine, as named in checkpoints and logs: `cpu`, `cuda:0`, `wgpu:0`. The number counts the devices
/// visible to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeDevice {
    /// The CPU, with tensors in host memory.
    Cpu,
    /// A CUDA device, by index.
    Cuda(usize),
    /// A device that wgpu finds (Vulkan, Metal, DX12), by index.
    Wgpu(usize),
}

impl fmt::Display for ComputeDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ComputeDevice::Cpu => f.write_str("cpu"),
            ComputeDevice::Cuda(index) => write!(f, "cuda:{index}"),
            ComputeDevice::Wgpu(index) => write!(f, "wgpu:{index}"),
        }
    }
}

/// A device has one random stream per process, shared by all models.
static DRAWS: Mutex<()> = Mutex::new(());

thread_local! {
    static DRAWING: Cell<bool> = const { Cell::new(false) };
}

/// Seeds `device` and runs `draw` with exclusive use of its random stream. A model may be built inside another one's
/// constructor.
pub fn drawn<T>(device: &Device, seed: u64, draw: impl FnOnce() -> T) -> T {
    struct Drawing(bool);
    impl Drop for Drawing {
        fn drop(&mut self) {
            DRAWING.set(self.0);
        }
    }
    let outer = Drawing(DRAWING.replace(true));
    let _alone = (!outer.0).then(|| DRAWS.lock().unwrap_or_else(PoisonError::into_inner));
    device.seed(seed);
    draw()
}

/// Whether tensors of `device` are in host memory.
pub fn is_host(device: &Device) -> bool {
    let plain = device.clone().without_autodiff();
    matches!(plain.as_dispatch(), DispatchDevice::Flex(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn random_draws_are_exclusive_and_reentrant() {
        let inside = AtomicUsize::new(0);
        let draw = || {
            drawn(&Device::flex(), 7, || {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two draw at once");
                drawn(&Device::flex(), 8, std::thread::yield_now);
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..200).for_each(|_| draw()));
            }
        });
        let panicked =
            std::panic::catch_unwind(|| drawn(&Device::flex(), 1, || panic!("expected by this test")));
        assert!(panicked.is_err());
        draw();
    }
}
