//! The `nccl` engine of a build without the cargo feature `nccl`.

use super::{CommError, DistributedConfig, GpuUuid, ProcessGroup};
use std::sync::Arc;

/// Why this build has no NCCL.
pub fn status() -> Result<String, String> {
    Err("this build has no CUDA support: build with `--features cuda`".to_owned())
}

/// Always fails: this build has no CUDA support.
pub fn gpu_uuid(_: usize) -> Result<GpuUuid, String> {
    Err(status().unwrap_err())
}

/// Always fails: this build has no NCCL.
pub fn connect(
    _: Arc<dyn ProcessGroup>,
    _: usize,
    _: &DistributedConfig,
) -> Result<Arc<dyn ProcessGroup>, CommError> {
    Err(CommError::unavailable(status().unwrap_err()))
}
