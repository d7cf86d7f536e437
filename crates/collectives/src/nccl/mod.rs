//! The `nccl` engine: NCCL moves gradients between GPUs; everything else uses the *control* group (gloo) that the ranks
//! have formed before. Requires the cargo feature `nccl`; without it, `missing` takes the
//! place of this module.
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

mod driver;
mod engine;
mod group;
mod join;
mod library;
mod order;
mod queue;
#[cfg(test)]
mod tests;
mod version;
mod watchdog;

use group::NcclGroup;

use super::{CommError, DistributedConfig, GpuUuid, ProcessGroup};
use std::sync::Arc;

/// Loads the CUDA driver, once; the error says why it can't be used. Call it before any other call of `cudarc`.
pub fn driver() -> Result<(), String> {
    driver::present()
}

/// The NCCL of this machine, or why there is none.
pub fn status() -> Result<String, String> {
    driver::present()?;
    library::Nccl::load().map(|nccl| format!("NCCL {}", nccl.version()))
}

/// The UUID of CUDA device number `device`, or why there is none.
pub fn gpu_uuid(device: usize) -> Result<GpuUuid, String> {
    driver::uuid(device)
}

/// Joins the ranks of `control` on their devices (in CUDA's numbering, after CUDA_VISIBLE_DEVICES). All of them make this call.
///
/// Errors, the same on all ranks: a library or device is missing on one of them or two ranks have the same GPU
/// (`Unavailable`), or the communicator does not form in time (`Rendezvous`).
pub fn connect(
    control: Arc<dyn ProcessGroup>,
    device: usize,
    limits: &DistributedConfig,
) -> Result<Arc<dyn ProcessGroup>, CommError> {
    Ok(Arc::new(NcclGroup::connect(control, device, limits)?))
}
