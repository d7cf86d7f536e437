//! f32 that is f32. CubeCL multiplies f32 matrices on tensor cores as TF32 wherever a device lists that type, and has no
//! setting against it; so unless TF32 is asked for, a device is opened as one that does not have it, as before NVIDIA's Ampere.

#![allow(unsafe_code)]

use super::Precision;
use crate::error::{Error, Result};
use cubecl::cuda::{CudaDevice, CudaRuntime};
use cubecl::ir::{DeviceProperties, ElemType, FloatKind};
use cubecl_runtime::client::Client;
use cubecl_runtime::runtime::Runtime;
use cubecl_runtime::server::{Server, ServerUtilities};
use std::sync::{Arc, Mutex, PoisonError};

const TF32: ElemType = ElemType::Float(FloatKind::TF32);

/// What `precision` may not use is not there. In bf16 and f16, what is left in f32 is meant to be.
///
/// Loads through the tensor memory accelerator (`tma`) round f32 as well. Only kernels on tensor cores load so, and those have f32 as
/// TF32 alone, so that without it no f32 matrix comes by there; in f32, nothing has a use for them.
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

/// Starts CubeCL's server of a device, the first time that it is opened, so that it computes in `precision`.
///
/// # Errors
/// The device was opened for another precision in this process: a bug.
pub(super) fn open(index: usize, precision: Precision) -> Result<()> {
    /// Devices that are open, and what for.
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
    // This and the server's. Another version of CubeCL may hand out more, and those could be read on any thread.
    if Arc::strong_count(&utilities) != 2 {
        return Err(Error::internal("CubeCL shares a device's properties before it is open"));
    }
    let place = Arc::as_ptr(&utilities).cast_mut();
    // SAFETY: `place` is what the `Arc` holds. Nobody else reads or borrows it while this runs: the server has just been made here
    // and is not on its thread yet, and it is the only other holder, as was just seen. The reference ends in this block.
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

/// What a device lists that is opened for `precision`.
#[cfg(test)]
pub(crate) fn listed(index: usize, precision: Precision) -> String {
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
    use crate::comm::nccl::tests::said_by;

    /// A driver of the tests' own says that its device is of compute capability 9.0. No tensor core multiplies f32 itself: that keeps
    /// f32 from `tma` in bf16 and f16.
    #[test]
    fn tf32_is_there_only_where_it_is_asked_for() {
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
