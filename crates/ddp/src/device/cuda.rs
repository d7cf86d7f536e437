//! CUDA: properties from the driver, without opening a device, and the address of a tensor.

#![allow(unsafe_code)]

use super::Precision;
use base::error::{Error, Result};
use burn::tensor::{self, Device, Tensor};
use burn_cubecl::CubeDevice;
use collectives::{DType, DeviceSlice, nccl};
use cubecl::cuda::CudaRuntime;
use cubecl_runtime::runtime::Runtime;
use cudarc::driver::{result, sys};

/// Returns what is missing if CUDA can't be used. Must be called first, because `cudarc` panics if the library is
/// missing and CubeCL panics if the headers are.
fn present() -> Result<(), String> {
    nccl::driver()?;
    // SAFETY: opens and closes libnvrtc, which runs only its own code to load and unload.
    if !unsafe { cudarc::nvrtc::sys::is_culib_present() } {
        let why = "the CUDA runtime compiler was not found (no libnvrtc.so); install the CUDA toolkit, or add its folder to \
                   LD_LIBRARY_PATH";
        return Err(why.to_owned());
    }
    let none = "the CUDA headers were not found (no /usr/local/cuda); set CUDA_PATH to the folder that contains `include`";
    cubecl::cuda::install::cuda_path().map(drop).ok_or_else(|| none.to_owned())
}

/// Names of the devices visible to this process, without opening one.
pub(super) fn names() -> Result<Vec<String>, String> {
    present()?;
    let said = |e: result::DriverError| format!("CUDA's driver: {e}");
    let count = result::device::get_count().map_err(said)?;
    let name = |index| result::device::get(index).and_then(result::device::get_name).map_err(said);
    match count {
        0 => Err("the CUDA driver reports no device".to_owned()),
        _ => (0..count).map(name).collect(),
    }
}

/// What compiled kernels depend on: the model of the card and its compute capability.
pub(super) fn card(index: usize) -> String {
    use sys::CUdevice_attribute as Attribute;
    let Some(name) = names().ok().and_then(|names| names.into_iter().nth(index)) else {
        return "cuda".to_owned();
    };
    let capability = |attribute| {
        let device = result::device::get(index as i32).ok()?;
        // SAFETY: the driver returned this device; the call only reads.
        unsafe { result::device::get_attribute(device, attribute) }.ok()
    };
    let major = capability(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR).unwrap_or(0);
    let minor = capability(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR).unwrap_or(0);
    format!("{name} sm{major}{minor}")
}

pub(super) fn open(index: usize, precision: Precision) -> Result<Device> {
    let missing = |why: String| Error::unavailable(format!("device `cuda:{index}`: {why}"));
    let there = names().map_err(missing)?.len();
    if index >= there {
        return Err(missing(format!("this process sees {there}")));
    }
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
/// A tensor that is not contiguous on a CUDA device: a bug.
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
        .map_err(|e| odd(&e.to_string()))?;
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
