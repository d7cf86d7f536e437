//! The parts of the CUDA driver that this engine uses: the device's primary context, and its streams and events.
//! Together with `library`, the only unsafe code of this engine.

#![allow(unsafe_code)]

use crate::GpuUuid;
use cudarc::driver::{result, sys};
use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

/// `cuCtxRecordEvent` and `cuCtxWaitEvent`, in drivers for CUDA 12.5 and later.
type ContextEvent = unsafe extern "C" fn(sys::CUcontext, sys::CUevent) -> sys::CUresult;

/// Formats an error of `call` with the driver's own text.
fn driver_error(call: &str) -> impl Fn(result::DriverError) -> String {
    move |e| {
        let text =
            |t: Result<&std::ffi::CStr, _>| t.map_or(String::new(), |t| t.to_string_lossy().into_owned());
        format!("{call}: {} ({})", text(e.error_name()), text(e.error_string()))
    }
}

/// Loads the driver, once; the error says why it cannot be used. Call it before anything else here, because `cudarc`
/// panics where there is no library.
pub(super) fn present() -> Result<(), String> {
    static LOADED: OnceLock<Result<(), String>> = OnceLock::new();
    let load = || {
        // SAFETY: opens and closes libcuda, which runs only its own code when it is loaded.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "the CUDA driver was not found: no libcuda.so.1; install NVIDIA's driver, or add its folder to \
                        LD_LIBRARY_PATH"
                    .to_owned(),
            );
        }
        result::init().map_err(driver_error("the CUDA driver failed to start: cuInit"))
    };
    LOADED.get_or_init(load).clone()
}

/// The number of devices that this process sees.
pub(super) fn count() -> Result<c_int, String> {
    present()?;
    result::device::get_count().map_err(driver_error("cuDeviceGetCount"))
}

/// Device number `ordinal`, in CUDA's numbering.
fn device(ordinal: usize) -> Result<sys::CUdevice, String> {
    let count = count()?;
    let number = c_int::try_from(ordinal).ok().filter(|n| *n < count);
    let number =
        number.ok_or_else(|| format!("CUDA device {ordinal} does not exist: this process sees {count}"))?;
    result::device::get(number).map_err(driver_error("cuDeviceGet"))
}

/// UUID of GPU number `ordinal`, or of the part of it that this process sees as a device. Needs no context, which takes
/// long to create.
pub(super) fn uuid(ordinal: usize) -> Result<GpuUuid, String> {
    let device = device(ordinal)?;
    let mut uuid = sys::CUuuid_st { bytes: [0; 16] };
    // SAFETY: the pointer is valid, and the device is the driver's.
    let result = unsafe { sys::cuDeviceGetUuid_v2(&mut uuid, device) };
    result.result().map_err(driver_error("cuDeviceGetUuid"))?;
    Ok(GpuUuid(uuid.bytes.map(|b| b as u8)))
}

/// A reference to the primary context, which the CUDA runtime, NCCL and CubeCL use.
struct Primary {
    device: sys::CUdevice,
    raw: sys::CUcontext,
}

// SAFETY: contexts may be used from any thread, and from several.
unsafe impl Send for Primary {}
// SAFETY: the same.
unsafe impl Sync for Primary {}

impl Drop for Primary {
    fn drop(&mut self) {
        // SAFETY: one release for the one retain. Streams and events hold the reference as long as they live.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// The primary context of one device.
#[derive(Clone)]
pub(super) struct CudaContext {
    primary: Arc<Primary>,
    record_event: Option<ContextEvent>,
    wait_event: Option<ContextEvent>,
}

impl CudaContext {
    /// Opens the context of device number `ordinal`, in CUDA's numbering, and makes it current on the calling thread.
    pub(super) fn open(ordinal: usize) -> Result<Self, String> {
        let device = device(ordinal)?;
        // SAFETY: the driver has just returned the device.
        let raw = unsafe { result::primary_ctx::retain(device) }
            .map_err(driver_error("cuDevicePrimaryCtxRetain"))?;
        let primary = Arc::new(Primary { device, raw });
        let symbol = |name: &[u8]| {
            // SAFETY: the driver is loaded (`present`), and where they exist, both names are functions of this type.
            // They are not taken from `cudarc`, which has them only if it was built for CUDA 12.5 or later.
            unsafe { sys::culib().get::<ContextEvent>(name) }.ok().map(|s| *s)
        };
        let context = Self {
            primary,
            record_event: symbol(b"cuCtxRecordEvent\0"),
            wait_event: symbol(b"cuCtxWaitEvent\0"),
        };
        context.enter()?;
        Ok(context)
    }

    /// Makes it the calling thread's current context.
    pub(super) fn enter(&self) -> Result<(), String> {
        // SAFETY: the context is retained.
        unsafe { result::ctx::set_current(self.primary.raw) }.map_err(driver_error("cuCtxSetCurrent"))
    }

    /// The CUDA version that the driver supports: `12080` is 12.8.
    pub(super) fn driver(&self) -> Result<c_int, String> {
        let mut version = 0;
        // SAFETY: the pointer is valid.
        unsafe { sys::cuDriverGetVersion(&mut version) }
            .result()
            .map_err(driver_error("cuDriverGetVersion"))?;
        Ok(version)
    }

    /// Waits until all work of the context is done.
    pub(super) fn synchronize(&self) -> Result<(), String> {
        self.enter()?;
        result::ctx::synchronize().map_err(driver_error("cuCtxSynchronize"))
    }

    /// A stream that does not wait implicitly for any other.
    pub(super) fn stream(&self) -> Result<CudaStream, String> {
        self.enter()?;
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)
            .map_err(driver_error("cuStreamCreate"))?;
        Ok(CudaStream { raw, _context: self.primary.clone() })
    }

    pub(super) fn event(&self) -> Result<CudaEvent, String> {
        self.enter()?;
        let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING;
        let raw = result::event::create(flags).map_err(driver_error("cuEventCreate"))?;
        Ok(CudaEvent { raw, _context: self.primary.clone() })
    }

    /// Records `event` at the end of all work launched in the context so far.
    pub(super) fn record(&self, event: &CudaEvent) -> Result<(), String> {
        let record =
            self.record_event.ok_or("the driver is older than CUDA 12.5 and has no cuCtxRecordEvent")?;
        // SAFETY: context and event are alive, and the event is of this context.
        unsafe { record(self.primary.raw, event.raw) }.result().map_err(driver_error("cuCtxRecordEvent"))
    }

    /// Makes all work launched in the context from now on wait for `event`.
    pub(super) fn wait(&self, event: &CudaEvent) -> Result<(), String> {
        let wait = self.wait_event.ok_or("the driver is older than CUDA 12.5 and has no cuCtxWaitEvent")?;
        // SAFETY: both are alive.
        unsafe { wait(self.primary.raw, event.raw) }.result().map_err(driver_error("cuCtxWaitEvent"))
    }
}

pub(super) struct CudaStream {
    raw: sys::CUstream,
    _context: Arc<Primary>,
}

// SAFETY: streams may be used from any thread, and from several.
unsafe impl Send for CudaStream {}
// SAFETY: the same.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn raw(&self) -> sys::CUstream {
        self.raw
    }

    /// Makes work launched on the stream from now on wait for `event`.
    pub(super) fn wait(&self, event: &CudaEvent) -> Result<(), String> {
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT;
        // SAFETY: both are alive.
        unsafe { result::stream::wait_event(self.raw, event.raw, flags) }
            .map_err(driver_error("cuStreamWaitEvent"))
    }

    /// Records `event` at the end of what has been launched on the stream so far.
    pub(super) fn record(&self, event: &CudaEvent) -> Result<(), String> {
        // SAFETY: both are alive and of one context.
        unsafe { result::event::record(event.raw, self.raw) }.map_err(driver_error("cuEventRecord"))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: it is alive; the driver keeps what it needs until the stream's work is done.
        let _ = unsafe { result::stream::destroy(self.raw) };
    }
}

/// A point in the work of a stream or context.
pub(super) struct CudaEvent {
    raw: sys::CUevent,
    _context: Arc<Primary>,
}

// SAFETY: events may be used from any thread, and from several.
unsafe impl Send for CudaEvent {}
// SAFETY: the same.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    /// Whether the device has reached it. An error is the device's: its context can no longer be used.
    pub(super) fn is_done(&self) -> Result<bool, String> {
        // SAFETY: the event is alive.
        match unsafe { result::event::query(self.raw) } {
            Ok(()) => Ok(true),
            Err(e) if e.0 == sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            Err(e) => Err(driver_error("the device failed: cuEventQuery")(e)),
        }
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: it is alive; the driver keeps what it needs until the event is reached.
        let _ = unsafe { result::event::destroy(self.raw) };
    }
}
