//! Keeps f32 exact. CubeCL multiplies f32 matrices on tensor cores as TF32 if the device lists that type, and has no
//! setting against it. Unless TF32 is requested, a device is therefore opened as one without it, like those before
//! NVIDIA's Ampere.

#![allow(unsafe_code)]

use super::Precision;
use base::error::{Error, Result};
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};
use cubecl_runtime::client::Client;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::{Server, ServerUtilities};
use std::sync::{Arc, Mutex, PoisonError};

const TF32: ElemType = ElemType::Float(FloatKind::TF32);

/// Removes the features that `precision` must not use. In bf16 and f16, operations that remain in f32 are exact too.
///
/// Loads through the tensor memory accelerator (`tma`) round f32 as well. Only tensor-core kernels use such loads, and
/// they support f32 only as TF32, so without TF32 no f32 matrix is loaded this way. With `f32`, no kernel needs them.
fn restrict(properties: &mut DeviceProperties, precision: Precision) {
    if precision == Precision::Tf32 {
        return;
    }
    properties.features.types.elem.remove(&TF32);
    let matmul = &mut properties.features.matmul;
    matmul.cmma.retain(|shape| shape.a_type != TF32 && shape.b_type != TF32);
    matmul.mma.retain(|shape| shape.a_type != TF32 && shape.b_type != TF32);
    if precision == Precision::F32 {
        properties.features.tma.clear();
    }
}

/// Starts CubeCL's server of a device when it is first opened, so that it computes in `precision`.
///
/// # Errors
/// The device is already open with another precision in this process: a bug.
pub(super) fn open(index: usize, precision: Precision) -> Result<()> {
    /// Open devices and their precision.
    static OPEN: Mutex<Vec<(usize, Precision)>> = Mutex::new(Vec::new());
    let mut opened = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    match opened.iter().find(|(there, _)| *there == index) {
        Some((_, like)) if *like == precision => Ok(()),
        Some((_, like)) => {
            Err(Error::internal(format!("device `cuda:{index}` is open for {} already", like.name())))
        }
        None => {
            start(index, precision)?;
            opened.push((index, precision));
            Ok(())
        }
    }
}

fn start(index: usize, precision: Precision) -> Result<()> {
    use cubecl_common::device::{Device, DeviceService};
    type CudaServer = <CudaRuntime as Runtime>::Server;

    let id = CudaDevice::new(index).to_id();
    let server = CudaServer::init(id);
    let utilities: Arc<ServerUtilities> = Server::utilities(&server);
    // This handle and the server's. Another version of CubeCL may create more, which other threads could read.
    if Arc::strong_count(&utilities) != 2 {
        return Err(Error::internal("CubeCL shares a device's properties before it is open"));
    }
    let place = Arc::as_ptr(&utilities).cast_mut();
    // SAFETY: `place` is the content of the `Arc`. Nobody else reads or borrows it during this block: the only other
    // holder, as just checked, is the server, which was created here and is not on its thread yet. The reference ends
    // in this block.
    unsafe {
        let shared = &mut (*place).properties;
        let mut properties = DeviceProperties::clone(shared);
        restrict(&mut properties, precision);
        *shared = Arc::new(properties);
    }
    Client::try_init(id, server)
        .map(drop)
        .map_err(|e| Error::internal(format!("device `cuda:{index}` is open already: {e:?}")))
}

/// The types and features that a device opened for `precision` lists.
#[cfg(test)]
pub fn listed(index: usize, precision: Precision) -> String {
    open(index, precision).and_then(|()| open(index, precision)).expect("it opens, and opens again");
    let other = if precision == Precision::Tf32 { Precision::F32 } else { Precision::Tf32 };
    assert!(open(index, other).is_err(), "it has been opened for {precision:?}");
    let client = CudaRuntime::client(&CudaDevice::new(index));
    let listed = client.properties();
    let multiplies =
        |kind| listed.features.matmul.cmma.iter().any(|shape| shape.a_type == ElemType::Float(kind));
    let manually =
        |kind| listed.features.matmul.mma.iter().any(|shape| shape.a_type == ElemType::Float(kind));
    format!(
        "tf32 {} {} {}, f32 {} {}, f16 {} {}, tma {}",
        listed.supports_type(TF32),
        multiplies(FloatKind::TF32),
        manually(FloatKind::TF32),
        multiplies(FloatKind::F32),
        manually(FloatKind::F32),
        multiplies(FloatKind::F16),
        manually(FloatKind::F16),
        !listed.features.tma.is_empty()
    )
}

#[cfg(test)]
mod tests {
    use crate::device::nccl_tests::said_by;

    /// The tests' own driver reports a device of compute capability 9.0. Tensor cores do not multiply f32 itself, so
    /// f32 does not use `tma` in bf16 and f16.
    #[test]
    fn tf32_is_listed_only_if_requested() {
        for (precision, expected) in [
            ("tf32", "tf32 true true true, f32 false false, f16 true true, tma true"),
            ("f32", "tf32 false false false, f32 false false, f16 true true, tma false"),
            ("bf16", "tf32 false false false, f32 false false, f16 true true, tma true"),
            ("f16", "tf32 false false false, f32 false false, f16 true true, tma true"),
        ] {
            let Some(said) = said_by("listed", &[("DDP_RUN_NCCL_PRECISION", precision)]) else { return };
            assert_eq!(said, expected, "{precision}");
        }
    }
}
