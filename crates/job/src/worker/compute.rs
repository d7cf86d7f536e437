//! The device that a rank computes on.

use base::error::Result;
use ddp::device::{Compute, ComputeDevice, Precision, supports_precision};

/// Opens the device.
///
/// # Errors
/// The device does not exist, or does not support this precision (exit 69).
pub(super) fn compute(device: ComputeDevice, precision: Precision) -> Result<Compute> {
    supports_precision(precision, device)?;
    Ok(Compute { device: device.open(precision)?, dtype: precision.dtype() })
}
