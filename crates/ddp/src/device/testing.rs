//! Devices with their own memory, for unit tests.

use super::{ComputeDevice, Precision};
use burn::backend::WgpuDevice;
use burn::tensor::{Device, DeviceKind};
use cubecl::wgpu::wgpu::{Backend, PollType};
use cubecl::wgpu::{AutoGraphicsApi, RuntimeOptions, WgpuSetup, try_init_setup};

/// wgpu's first device. If there is none, prints that the test is skipped.
pub fn wgpu() -> Option<Device> {
    let device = ComputeDevice::Wgpu(0).open(Precision::F32);
    if let Err(why) = &device {
        println!("skipped: {}", why.message);
    }
    device.ok()
}

/// A device that can be lost, as in a driver reset. One per process: wgpu's default device, which nothing else opens here.
pub struct LosableDevice {
    pub device: Device,
    setup: WgpuSetup,
}

impl LosableDevice {
    pub fn open() -> Option<Self> {
        wgpu()?;
        // OpenGL contexts belong to threads: wgpu opens no second device while one is in use.
        if super::wgpu::list()[0].adapter.as_ref().is_none_or(|adapter| adapter.backend == Backend::Gl) {
            println!("skipped: there is no Vulkan, Metal or DX12 device");
            return None;
        }
        let setup = try_init_setup::<AutoGraphicsApi>(&WgpuDevice::default(), RuntimeOptions::default());
        Some(Self {
            device: Device::wgpu(DeviceKind::DefaultDevice),
            setup: setup.expect("nobody has opened it"),
        })
    }

    pub fn lose(&self) {
        self.setup.device.destroy();
        // Delivers the loss to its callbacks.
        let _ = self.setup.device.poll(PollType::Poll);
    }
}
