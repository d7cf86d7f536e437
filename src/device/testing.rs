//! The device with memory of its own that unit tests run on.

use super::{ComputeDevice, Precision};
use burn::tensor::Device;

/// wgpu's first device. Says that a test is skipped where there is none.
pub(crate) fn wgpu() -> Option<Device> {
    let device = ComputeDevice::Wgpu(0).open(Precision::F32);
    if let Err(why) = &device {
        println!("skipped: {}", why.message);
    }
    device.ok()
}
