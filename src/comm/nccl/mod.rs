//! The `nccl` engine: NCCL moves gradients between GPUs; everything else uses the *control* group (gloo) that the ranks
//! have formed before. Requires the cargo feature `nccl`, which is part of `cuda`; without it, this module only reports
//! that it is missing.
//!
//! `NcclGroup` passes every call on host memory to the control group and adds [`DeviceCollectives`]: enqueued on a
//! separate stream, ordered by events before and after all other work in the device's context, so that neither the host
//! nor other streams wait. A watchdog thread does what NCCL lacks: it detects when collectives end, learns of lost peers
//! through the control group, and aborts the communicator at the deadline. The device then continues, and every later
//! call fails with an error that names the culprit.
//!
//! From the outside in: `group` is the process group; `join` compares the ranks' devices and libraries and forms the
//! communicator; `engine` launches collectives and keeps the first failure; `watchdog` is the thread; `queue` is the
//! collectives in flight; `order` orders collectives among other work; `driver` and `library` contain all unsafe code.
//!
//! NCCL itself is loaded by this module, not by `cudarc`: that knows it only as `libnccl.so`, which installations
//! without headers lack, and panics if a symbol is missing. `NCCL_*` variables are left to the library.
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

/// Configuration that the control group does not provide.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "nccl"), allow(dead_code))]
pub struct NcclConfig {
    /// This rank's device, in CUDA's numbering (after CUDA_VISIBLE_DEVICES).
    pub device: usize,
    /// Time limit from the call until the communicator is formed.
    pub init_timeout: Duration,
    /// Timeout of each later collective, from the moment at which the device could begin it.
    pub timeout: Duration,
}

/// Loads the CUDA driver, once; the error says why it can't be used. Call it before any other call of `cudarc`.
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

/// The UUID of CUDA device number `device`, or why there is none.
#[cfg(feature = "nccl")]
pub(crate) fn gpu_uuid(device: usize) -> Result<GpuUuid, String> {
    driver::uuid(device)
}

/// Always fails: this build has no CUDA support.
#[cfg(not(feature = "nccl"))]
pub(crate) fn gpu_uuid(_: usize) -> Result<GpuUuid, String> {
    Err(status().unwrap_err())
}

/// Joins the ranks of `control` on their devices. All of them make this call.
///
/// Errors, the same on all ranks: a library or device is missing on one of them (exit 69), two ranks have the same GPU
/// (69), or the communicator does not form in time (93).
#[cfg(feature = "nccl")]
pub fn connect(control: Arc<dyn ProcessGroup>, config: &NcclConfig) -> Result<Arc<dyn ProcessGroup>> {
    Ok(Arc::new(NcclGroup::connect(control, config)?))
}

/// Always fails: this build has no NCCL (exit 69).
#[cfg(not(feature = "nccl"))]
pub fn connect(_: Arc<dyn ProcessGroup>, _: &NcclConfig) -> Result<Arc<dyn ProcessGroup>> {
    Err(crate::error::Error::unavailable(status().unwrap_err()))
}
