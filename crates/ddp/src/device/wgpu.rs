//! The adapters that wgpu finds (Vulkan, Metal, DX12), and what their drivers report without opening a device.

use burn::backend::{DispatchDevice, WgpuDevice};
use burn::tensor::{Device, DeviceType};
use cubecl::wgpu::wgpu::{Adapter, AdapterInfo, Backends, DeviceType as Kind, Instance, InstanceDescriptor};
use cubecl::wgpu::{AutoGraphicsApi, GraphicsApi, WgpuDeviceKind};
use std::sync::OnceLock;

pub(super) struct WgpuAdapter {
    pub device: Device,
    /// The driver's description, if known.
    pub adapter: Option<AdapterInfo>,
}

impl WgpuAdapter {
    /// Name of the card and its driver.
    pub fn card(&self) -> Option<String> {
        self.adapter.as_ref().map(|it| format!("wgpu {} {} {}", it.name, it.driver, it.driver_info))
    }
}

/// Enumerates adapters once: this starts every graphics driver, and some do not support that on several threads. CPU
/// adapters count only if there are no others.
pub(super) fn list() -> &'static [WgpuAdapter] {
    static FOUND: OnceLock<Vec<WgpuAdapter>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let all = Device::enumerate(DeviceType::Wgpu).into_vec();
        let in_software = |device: &Device| matches!(kind(device), Some(WgpuDeviceKind::Cpu));
        let (software, hardware): (Vec<_>, Vec<_>) = all.into_iter().partition(in_software);
        let chosen = if hardware.is_empty() { software } else { hardware };
        let adapters = if chosen.is_empty() { Vec::new() } else { adapters() };
        let found = |device: Device| WgpuAdapter {
            adapter: kind(&device).and_then(|kind| adapter(kind, &adapters)),
            device,
        };
        chosen.into_iter().map(found).collect()
    })
}

fn kind(device: &Device) -> Option<&WgpuDeviceKind> {
    match device.as_dispatch() {
        DispatchDevice::Cube(cubecl::Device::Wgpu(WgpuDevice { kind, .. })) => Some(kind),
        _ => None,
    }
}

/// Adapters of the graphics API with which CubeCL opens devices.
fn adapters() -> Vec<AdapterInfo> {
    let backends = Backends::from(AutoGraphicsApi::backend());
    let instance =
        Instance::new(InstanceDescriptor { backends, ..InstanceDescriptor::new_without_display_handle() });
    let adapters = cubecl::future::block_on(instance.enumerate_adapters(backends));
    adapters.iter().map(Adapter::get_info).collect()
}

/// The adapter of `kind`: CubeCL counts each kind from 0.
fn adapter(kind: &WgpuDeviceKind, adapters: &[AdapterInfo]) -> Option<AdapterInfo> {
    let (kind, index) = match kind {
        WgpuDeviceKind::DiscreteGpu(index) => (Kind::DiscreteGpu, *index),
        WgpuDeviceKind::IntegratedGpu(index) => (Kind::IntegratedGpu, *index),
        WgpuDeviceKind::VirtualGpu(index) => (Kind::VirtualGpu, *index),
        WgpuDeviceKind::Other(index) => (Kind::Other, *index),
        WgpuDeviceKind::Cpu => (Kind::Cpu, 0),
        WgpuDeviceKind::DefaultDevice | WgpuDeviceKind::Existing(_) => return None,
    };
    adapters.iter().filter(|adapter| adapter.device_type == kind).nth(index).cloned()
}

#[cfg(test)]
mod on_wgpu {
    use super::*;

    #[test]
    fn a_card_is_identified_before_it_is_opened() {
        if crate::device::testing::wgpu().is_none() {
            return;
        }
        for found in list() {
            let card = found.card().unwrap();
            let opened = found.device.identity().unwrap().name;
            assert!(card.starts_with(&format!("wgpu {opened} ")), "{card}, and `{opened}` opens");
        }
    }

    #[test]
    fn each_kind_of_adapter_is_numbered_from_0() {
        let named = |kind, name: &str| AdapterInfo {
            name: name.to_owned(),
            ..AdapterInfo::new(kind, cubecl::wgpu::wgpu::Backend::Vulkan)
        };
        let all = [
            named(Kind::IntegratedGpu, "a"),
            named(Kind::DiscreteGpu, "b"),
            named(Kind::Cpu, "c"),
            named(Kind::DiscreteGpu, "d"),
        ];
        let of = |kind| adapter(&kind, &all).map(|adapter| adapter.name);
        assert_eq!(of(WgpuDeviceKind::DiscreteGpu(1)).as_deref(), Some("d"));
        assert_eq!(of(WgpuDeviceKind::IntegratedGpu(0)).as_deref(), Some("a"));
        assert_eq!(of(WgpuDeviceKind::Cpu).as_deref(), Some("c"));
        assert_eq!(of(WgpuDeviceKind::DiscreteGpu(2)), None);
    }
}
