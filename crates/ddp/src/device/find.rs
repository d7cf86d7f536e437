//! Finds the devices of this build and this machine, and chooses a rank's.

#[cfg(feature = "wgpu")]
use super::wgpu;
use super::{ComputeDevice, DeviceSpec, Precision};
use base::error::{Error, Result};
use burn::tensor::Device;

/// Names of the CUDA devices visible to this process (subject to `CUDA_VISIBLE_DEVICES`), or why there are none.
pub fn cuda_devices() -> Result<Vec<String>, String> {
    #[cfg(feature = "cuda")]
    return super::cuda::names();
    #[cfg(not(feature = "cuda"))]
    Err("this build has no CUDA support (cargo feature `cuda`)".to_owned())
}

/// Why this process cannot use the CUDA devices that its driver reports: `device = "auto"` is the CPU then. None if it can
/// use them, or if there are none.
pub fn unusable_cuda_devices() -> Option<String> {
    #[cfg(feature = "cuda")]
    return super::cuda::unusable();
    #[cfg(not(feature = "cuda"))]
    None
}

/// Names of the devices that wgpu finds, or why there are none.
pub fn wgpu_devices() -> Result<Vec<String>, String> {
    #[cfg(feature = "wgpu")]
    {
        // wgpu opens a device to read its name.
        super::kernel_cache::use_defaults();
        let name = |device: &Device| device.identity().map_or_else(|| "unnamed".to_owned(), |it| it.name);
        let names: Vec<String> = wgpu::list().iter().map(|found| name(&found.device)).collect();
        if names.is_empty() { Err("no Vulkan, Metal or DX12 device was found".to_owned()) } else { Ok(names) }
    }
    #[cfg(not(feature = "wgpu"))]
    Err("this build has no wgpu support (cargo feature `wgpu`)".to_owned())
}

/// Number of devices of `spec`'s kind visible to this process; 0 for the CPU.
pub fn count(spec: DeviceSpec) -> usize {
    match spec {
        DeviceSpec::Cpu => 0,
        DeviceSpec::Auto | DeviceSpec::Cuda(_) => cuda_devices().map_or(0, |names| names.len()),
        #[cfg(feature = "wgpu")]
        DeviceSpec::Wgpu(_) => wgpu::list().len(),
        #[cfg(not(feature = "wgpu"))]
        DeviceSpec::Wgpu(_) => 0,
    }
}

/// Checks that this build and this machine have the device of `spec`.
///
/// # Errors
/// `ErrorKind::Unavailable`, with the reason, if there is no such device.
pub fn available(spec: DeviceSpec) -> Result<()> {
    let found = match spec {
        DeviceSpec::Auto | DeviceSpec::Cpu => return Ok(()),
        DeviceSpec::Cuda(_) => cuda_devices(),
        DeviceSpec::Wgpu(_) => wgpu_devices(),
    };
    let why = match (found, spec.index()) {
        (Err(why), _) => why,
        (Ok(names), Some(index)) if index >= names.len() => match names.len() {
            1 => "this machine has one, number 0".to_owned(),
            there => format!("this machine has {there}, numbered from 0"),
        },
        (Ok(_), _) => return Ok(()),
    };
    Err(Error::unavailable(format!("device `{spec}`: {why}")).hint("`device = \"cpu\"` computes on the CPU"))
}

/// The device of the process with this local rank. If there are more processes than devices, they are assigned in turn.
pub fn of_rank(spec: DeviceSpec, local_rank: usize) -> ComputeDevice {
    among(spec, local_rank, || count(spec))
}

/// As [`of_rank`], with a given number of devices.
pub fn among(spec: DeviceSpec, local_rank: usize, there: impl Fn() -> usize) -> ComputeDevice {
    let one = |index: Option<usize>| index.unwrap_or_else(|| local_rank % there().max(1));
    match spec {
        DeviceSpec::Cpu => ComputeDevice::Cpu,
        DeviceSpec::Auto if there() == 0 => ComputeDevice::Cpu,
        DeviceSpec::Auto => ComputeDevice::Cuda(one(None)),
        DeviceSpec::Cuda(index) => ComputeDevice::Cuda(one(index)),
        DeviceSpec::Wgpu(index) => ComputeDevice::Wgpu(one(index)),
    }
}

/// Checks that `device` supports this precision. CUDA devices are not asked: all current NVIDIA cards support all of them.
///
/// # Errors
/// `ErrorKind::Unavailable` if it does not.
pub fn supports_precision(precision: Precision, device: ComputeDevice) -> Result<()> {
    let fits = match (precision, device) {
        (Precision::F32, _) | (_, ComputeDevice::Cuda(_)) => true,
        (_, ComputeDevice::Cpu) | (Precision::Tf32, _) => false,
        (_, ComputeDevice::Wgpu(_)) => device.open(precision)?.supports_dtype(precision.dtype()),
    };
    if fits {
        return Ok(());
    }
    let message = format!("device `{device}` does not support {}", precision.name());
    Err(Error::unavailable(message).hint("`precision = \"f32\"` works on every device"))
}

impl ComputeDevice {
    /// The Burn device, without autodiff; `precision` is that of this process.
    ///
    /// # Errors
    /// `ErrorKind::Unavailable` if the build lacks the device's feature or there is no such device.
    #[cfg_attr(not(feature = "cuda"), allow(unused_variables))]
    pub fn open(self, precision: Precision) -> Result<Device> {
        #[cfg(feature = "cubecl-devices")]
        super::kernel_cache::use_defaults();
        match self {
            ComputeDevice::Cpu => Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            ComputeDevice::Cuda(index) => super::cuda::open(index, precision),
            #[cfg(feature = "wgpu")]
            ComputeDevice::Wgpu(index) => {
                let there = wgpu::list().get(index).map(|found| found.device.clone());
                there.ok_or_else(|| Error::unavailable(format!("device `{self}` does not exist")))
            }
            #[allow(unreachable_patterns, reason = "a build may have all devices")]
            _ => Err(Error::unavailable(format!("device `{self}`: this build has no support for it"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn a_missing_device_is_rejected_with_the_reason() {
        for spec in [DeviceSpec::Cuda(Some(4000)), DeviceSpec::Wgpu(Some(4000))] {
            let error = available(spec).expect_err("no machine has so many");
            assert_eq!(error.kind, ErrorKind::Unavailable);
            assert!(error.message.contains(&spec.to_string()), "{}", error.message);
        }
        assert!(available(DeviceSpec::Auto).is_ok() && available(DeviceSpec::Cpu).is_ok());
    }

    #[test]
    fn a_rank_uses_the_named_device_or_that_of_its_local_rank() {
        assert_eq!(of_rank(DeviceSpec::Cpu, 3), ComputeDevice::Cpu);
        assert_eq!(of_rank(DeviceSpec::Cuda(Some(2)), 0), ComputeDevice::Cuda(2));
        let of = |spec, there: usize| [0, 1, 2, 3].map(|local_rank| among(spec, local_rank, || there));
        assert_eq!(of(DeviceSpec::Auto, 0), [ComputeDevice::Cpu; 4]);
        assert_eq!(of(DeviceSpec::Auto, 4), [0, 1, 2, 3].map(ComputeDevice::Cuda));
        assert_eq!(of(DeviceSpec::Cuda(None), 2), [0, 1, 0, 1].map(ComputeDevice::Cuda));
        assert_eq!(of(DeviceSpec::Wgpu(None), 1), [0; 4].map(ComputeDevice::Wgpu));
        assert_eq!(of(DeviceSpec::Wgpu(Some(3)), 1), [3; 4].map(ComputeDevice::Wgpu));
    }
}
