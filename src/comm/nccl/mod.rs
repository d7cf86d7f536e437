//! The `nccl` engine: gradients go between GPUs by NCCL, everything else by the *control* group (gloo) that the ranks have
//! formed before. Needs the cargo feature `nccl`, which is part of `cuda`; without it this module only
//! says so.
//!
//! `NcclGroup` hands every call on host memory to the control group and adds [`DeviceCollectives`]: enqueued on a
//! stream of its own, ordered by events before and after whatever else runs in the device's context, so that neither
//! the host nor other streams wait. What NCCL lacks is watched from beside: a thread that sees collectives end, hears of
//! lost peers through the control group, and at the deadline aborts the communicator, upon which the device goes on and
//! every later call fails with an error that names the culprit.
//!
//! From the outside in: `group` is the process group; `join` compares the ranks' devices and libraries and forms the
//! communicator; `engine` launches collectives and keeps the first failure; `watchdog` is the thread; `queue` what is
//! under way; `order` how collectives are ordered among other work; `driver` and `library` hold all of the unsafe code.
//!
//! NCCL itself is loaded by this module, not by `cudarc`: that knows it only as `libnccl.so`, which installations
//! without headers lack, and panics where a symbol is missing. `NCCL_*` variables are left to the library.
//!
//! [`DeviceCollectives`]: super::DeviceCollectives

#[cfg(feature = "nccl")]
mod driver;
#[cfg(feature = "nccl")]
mod engine;
#[cfg(feature = "nccl")]
mod group;
#[cfg(feature = "nccl")]
mod join;
#[cfg(feature = "nccl")]
mod library;
#[cfg(feature = "nccl")]
mod order;
#[cfg(feature = "nccl")]
mod queue;
#[cfg(all(test, feature = "nccl"))]
pub(crate) mod tests;
#[cfg(feature = "nccl")]
mod version;
#[cfg(feature = "nccl")]
mod watchdog;

#[cfg(feature = "nccl")]
pub use group::NcclGroup;

use super::{GpuUuid, ProcessGroup};
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// What the group cannot ask the control group.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "nccl"), allow(dead_code))]
pub struct NcclConfig {
    /// This rank's device, by CUDA's count (after CUDA_VISIBLE_DEVICES).
    pub device: usize,
    /// From the call until the communicator stands.
    pub init_timeout: Duration,
    /// Of each collective later on, from the moment at which the device could begin it.
    pub timeout: Duration,
}

/// Loads CUDA's driver, once; why it can't be used. Comes before any other call of `cudarc`'s.
#[cfg(feature = "cuda")]
pub(crate) fn driver() -> Result<(), String> {
    driver::present()
}

/// The NCCL of this machine, or why there is none.
#[cfg(feature = "nccl")]
pub fn status() -> Result<String, String> {
    driver::present()?;
    library::Nccl::load().map(|nccl| format!("NCCL {}", nccl.version()))
}

/// The NCCL of this machine, or why there is none.
#[cfg(not(feature = "nccl"))]
pub fn status() -> Result<String, String> {
    Err("this build has no CUDA support: build with `--features cuda`".to_owned())
}

/// The UUID of the CUDA device of that number, or why there is none.
#[cfg(feature = "nccl")]
pub(crate) fn gpu_uuid(device: usize) -> Result<GpuUuid, String> {
    driver::uuid(device)
}

/// The UUID of the CUDA device of that number: not in this build.
#[cfg(not(feature = "nccl"))]
pub(crate) fn gpu_uuid(_: usize) -> Result<GpuUuid, String> {
    Err(status().unwrap_err())
}

/// Joins the ranks of `control`, all of which make this call, on their devices.
///
/// Errors, on all ranks alike: a library or device is missing on one of them (exit 69), two ranks have one GPU (69), or
/// the communicator does not form in time (93).
#[cfg(feature = "nccl")]
pub fn connect(control: Arc<dyn ProcessGroup>, config: &NcclConfig) -> Result<Arc<dyn ProcessGroup>> {
    Ok(Arc::new(NcclGroup::connect(control, config)?))
}

/// Joins the ranks on their devices: not in this build (exit 69).
#[cfg(not(feature = "nccl"))]
pub fn connect(_: Arc<dyn ProcessGroup>, _: &NcclConfig) -> Result<Arc<dyn ProcessGroup>> {
    Err(crate::error::Error::unavailable(status().unwrap_err()))
}
