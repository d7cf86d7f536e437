//! CUDA: properties from the driver, without opening a device, and the address of a tensor.

#![allow(unsafe_code)]

mod toolkit;

use super::Precision;
use super::readback::device_failed;
use base::error::{Error, Result};
use burn::tensor::{self, Device, Tensor};
use burn_cubecl::CubeDevice;
use collectives::{DType, DeviceSlice, nccl};
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{result, sys};

fn driver_error(error: result::DriverError) -> String {
    format!("CUDA's driver: {error}")
}

/// Names of the devices visible to this process, without opening one.
pub(super) fn names() -> Result<Vec<String>, String> {
    toolkit::present()?;
    let count = result::device::get_count().map_err(driver_error)?;
    let name = |index| result::device::get(index).and_then(result::device::get_name).map_err(driver_error);
    match count {
        0 => Err("the CUDA driver reports no device".to_owned()),
        _ => (0..count).map(name).collect(),
    }
}

/// Why devices that the driver reports cannot be used, if there are any.
pub(super) fn unusable() -> Option<String> {
    let why = toolkit::present().err()?;
    nccl::driver().ok()?;
    result::device::get_count().is_ok_and(|there| there > 0).then_some(why)
}

/// The compute capability of a device: 90 is 9.0. Call it after [`names`], which loads the driver.
fn capability(index: usize) -> Result<i32, String> {
    use sys::CUdevice_attribute as Attribute;
    let device = result::device::get(index as i32).map_err(driver_error)?;
    let read = |attribute| {
        // SAFETY: the driver returned this device; the call only reads.
        unsafe { result::device::get_attribute(device, attribute) }.map_err(driver_error)
    };
    let major = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = read(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(major * 10 + minor)
}

/// What compiled kernels depend on: the model of the card, its compute capability, and the versions of NVRTC and the
/// driver. CubeCL stores PTX before the driver accepts it and never compiles that kernel again, so PTX that a driver has
/// refused must not be found once NVRTC or the driver has been replaced.
pub(super) fn card(index: usize) -> String {
    let describe = || {
        let name = names()?.into_iter().nth(index).ok_or("no such device")?;
        Ok::<_, String>(format!("{name} sm{} {}", capability(index)?, toolkit::present()?.versions()))
    };
    describe().unwrap_or_else(|_| "cuda".to_owned())
}

pub(super) fn open(index: usize, precision: Precision) -> Result<Device> {
    let missing = |why: String| Error::unavailable(format!("device `cuda:{index}`: {why}"));
    let there = names().map_err(missing)?.len();
    if index >= there {
        return Err(missing(format!("this process sees {there}")));
    }
    let toolkit = toolkit::present().map_err(missing)?;
    capability(index).and_then(|capability| toolkit.check_capability(capability)).map_err(missing)?;
    super::exact::open(index, precision)?;
    Ok(Device::cuda(index))
}

/// The memory of a flat float tensor, for an in-place collective. On return, all operations that compute it have been
/// submitted to the driver. The memory does not move while the slice's guard lives.
///
/// `tensor` must be the only handle of its values that is used before the collective's fence: Burn assumes that values
/// are constant, and these change.
///
/// # Errors
/// A device error; or a tensor that is not contiguous on a CUDA device: a bug.
pub fn slice(tensor: &Tensor<1>) -> Result<DeviceSlice> {
    let odd = |what: &str| Error::internal(format!("a gradient bucket cannot be averaged in place: {what}"));
    let [len] = tensor.dims();
    let resolved = super::resolved::resolved(tensor).map_err(odd)?;
    if !matches!(resolved.device, CubeDevice::Cuda(_)) {
        return Err(odd("it is not on a CUDA device"));
    }
    // On the device's own thread, after all launches so far.
    let memory = resolved
        .client
        .get_resource::<<CudaRuntime as Runtime>::Server>(resolved.handle.clone())
        .map_err(device_failed)?;
    let (address, bytes) = (memory.resource().ptr, memory.resource().size);
    let dtype = match resolved.dtype {
        tensor::DType::F32 => DType::F32,
        tensor::DType::BF16 => DType::BF16,
        tensor::DType::F16 => DType::F16,
        other => return Err(odd(&format!("it is of {other:?}"))),
    };
    if bytes < (len * dtype.size()) as u64 {
        return Err(odd("its memory is too small"));
    }
    // SAFETY: CubeCL allocated the memory in the device's primary context; it has at least `len` elements of `dtype`
    // and the alignment of all CubeCL allocations. The handle and the resource's binding keep it allocated and in
    // place. Launches before `get_resource` are ordered before it; the caller uses the tensor again only after the
    // fence.
    Ok(unsafe { DeviceSlice::new(address, len, dtype, Box::new((memory, resolved.handle))) })
}
