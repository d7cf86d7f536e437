//! NCCL's C interface, loaded at run time. Together with `driver`, the only unsafe code of this engine. Types are
//! declared here, not taken from `cudarc`: its layouts are those of one version, and results that are an enum there may
//! have a value that a later NCCL has added.

#![allow(unsafe_code)]

use super::driver::CudaStream;
use super::version::NcclVersion;
use crate::{DType, DeviceSlice, ReduceOp};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Runtime packages contain the first; the second comes with the headers.
const NAMES: [&CStr; 2] = [c"libnccl.so.2", c"libnccl.so"];
/// The first version whose configuration has all fields of [`CommunicatorConfig`]; later ones accept
/// it unchanged.
const OLDEST: c_int = 21800;
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;
const MAGIC: c_uint = 0xcafe_beef;
const UNDEFINED: c_int = c_int::MIN;

type Handle = *mut c_void;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct UniqueId(pub [u8; 128]);

/// `ncclConfig_t` as of [`OLDEST`]: a library reads `size` bytes, and uses its defaults for all fields that `version`
/// does not know.
#[repr(C)]
struct CommunicatorConfig {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cga_cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
}

/// The functions in use, by their names without the prefix `nccl`.
pub(super) struct Nccl {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init_rank_config:
        unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut CommunicatorConfig) -> c_int,
    comm_get_async_error: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    comm_finalize: unsafe extern "C" fn(Handle) -> c_int,
    comm_destroy: unsafe extern "C" fn(Handle) -> c_int,
    comm_abort: unsafe extern "C" fn(Handle) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_last_error: unsafe extern "C" fn(Handle) -> *const c_char,
}

/// An opened library, which is never closed.
struct SharedLibrary(*mut c_void);

impl SharedLibrary {
    fn open() -> Result<Self, String> {
        let mut why = Vec::new();
        for name in NAMES {
            // SAFETY: `name` is a C string. Loading the library runs only NCCL's own code.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if !handle.is_null() {
                return Ok(Self(handle));
            }
            // SAFETY: `dlerror` returns null or a C string that lives until this thread's next call of its kind.
            let error = unsafe { c_text(libc::dlerror()) };
            why.push(error.unwrap_or_else(|| name.to_string_lossy().into_owned()));
        }
        Err(format!(
            "NCCL was not found: {}; install it, or add its folder to LD_LIBRARY_PATH",
            why.join("; ")
        ))
    }

    /// # Safety
    /// `F` is a function pointer of the type that the library documents for `name`.
    unsafe fn get<F: Copy>(&self, name: &CStr) -> Result<F, String> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        // SAFETY: the handle is that of an opened library, `name` a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        if symbol.is_null() {
            return Err(format!("NCCL has no {}: 2.18 or later is required", name.to_string_lossy()));
        }
        // SAFETY: the sizes are equal, and by the caller's promise a symbol that is not null is a function of type `F`.
        Ok(unsafe { std::mem::transmute_copy(&symbol) })
    }
}

/// # Safety
/// `text` is null or a C string that lives for the duration of this call.
unsafe fn c_text(text: *const c_char) -> Option<String> {
    // SAFETY: by this function's contract.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Nccl {
    /// The machine's library, loaded once; the error says why it cannot be used.
    pub(super) fn load() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Nccl, String>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        let library = SharedLibrary::open()?;
        // SAFETY: the types are those of nccl.h; enums are C's `int` there, and CUstream is a pointer.
        let (version, nccl) = unsafe {
            let get_version: unsafe extern "C" fn(*mut c_int) -> c_int = library.get(c"ncclGetVersion")?;
            let nccl = Self {
                version: 0,
                get_unique_id: library.get(c"ncclGetUniqueId")?,
                comm_init_rank_config: library.get(c"ncclCommInitRankConfig")?,
                comm_get_async_error: library.get(c"ncclCommGetAsyncError")?,
                comm_finalize: library.get(c"ncclCommFinalize")?,
                comm_destroy: library.get(c"ncclCommDestroy")?,
                comm_abort: library.get(c"ncclCommAbort")?,
                all_reduce: library.get(c"ncclAllReduce")?,
                get_error_string: library.get(c"ncclGetErrorString")?,
                get_last_error: library.get(c"ncclGetLastError")?,
            };
            let mut version = 0;
            let result = get_version(&mut version);
            (if result == SUCCESS { version } else { 0 }, nccl)
        };
        match version {
            OLDEST.. => Ok(Self { version, ..nccl }),
            _ => Err(format!("NCCL is version {}; 2.18 or later is required", NcclVersion(version))),
        }
    }

    pub(super) fn version(&self) -> NcclVersion {
        NcclVersion(self.version)
    }

    pub(super) fn unique_id(&self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the function writes 128 bytes to the pointer that it gets.
        let result = unsafe { (self.get_unique_id)(&mut id) };
        self.outcome("ncclGetUniqueId", result).map(|_| id)
    }

    /// The result of a call.
    fn outcome(&self, call: &str, result: c_int) -> Result<CommunicatorState, String> {
        match result {
            SUCCESS => Ok(CommunicatorState::Ready),
            IN_PROGRESS => Ok(CommunicatorState::InProgress),
            _ => {
                // Without a communicator: the text is the same, and the one that failed may have been aborted in the meantime.
                let none = std::ptr::null_mut();
                // SAFETY: both return C strings that stay valid, or null; by NCCL's documentation, the second does not
                // use its argument.
                let (error, last) =
                    unsafe { (c_text((self.get_error_string)(result)), c_text((self.get_last_error)(none))) };
                let error = error.unwrap_or_else(|| format!("error {result}"));
                let last = last.map(|l| l.trim().to_owned()).filter(|l| !l.is_empty());
                Err(format!("{call}: {error}{}", last.map_or_else(String::new, |l| format!(" ({l})"))))
            }
        }
    }
}

/// The state of a non-blocking communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommunicatorState {
    Ready,
    /// The last call continues in one of NCCL's threads; nothing else may be called until it is done.
    InProgress,
}

/// This rank's end of the communicator, until it is destroyed or aborted. Dropped without either, it leaks, as it must:
/// the device may still be working for it.
pub(super) struct Communicator {
    nccl: &'static Nccl,
    handle: Handle,
}

// SAFETY: NCCL's communicators are not bound to a thread. Only one call at a time is allowed, which `&mut self` ensures.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Starts to join `world` ranks that have the same `id`, on the device of the calling thread's current context.
    pub(super) fn begin(
        nccl: &'static Nccl,
        world: usize,
        id: UniqueId,
        rank: usize,
    ) -> Result<Self, String> {
        let mut config = CommunicatorConfig {
            size: size_of::<CommunicatorConfig>(),
            magic: MAGIC,
            version: OLDEST as c_uint,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        };
        let mut handle = std::ptr::null_mut();
        // SAFETY: both pointers are valid for the call, which copies the configuration and writes the handle before it
        // returns, also with blocking = 0.
        let result = unsafe {
            (nccl.comm_init_rank_config)(&mut handle, world as c_int, id, rank as c_int, &mut config)
        };
        nccl.outcome("ncclCommInitRankConfig", result)?;
        if handle.is_null() {
            return Err("ncclCommInitRankConfig gave no communicator".to_owned());
        }
        Ok(Self { nccl, handle })
    }

    /// The state of the last call, or the failure that NCCL has detected since.
    pub(super) fn state(&mut self) -> Result<CommunicatorState, String> {
        let mut state = SUCCESS;
        // SAFETY: the handle is alive, and the pointer valid.
        let result = unsafe { (self.nccl.comm_get_async_error)(self.handle, &mut state) };
        self.nccl.outcome("ncclCommGetAsyncError", result)?;
        self.nccl.outcome("NCCL", state)
    }

    /// Enqueues the reduction of `buffer` over all ranks, in place. On success, the caller keeps the buffer's guard
    /// until `stream` has passed the collective; on failure, forever.
    pub(super) fn all_reduce(
        &mut self,
        buffer: &DeviceSlice,
        op: ReduceOp,
        stream: &CudaStream,
    ) -> Result<CommunicatorState, String> {
        let address = buffer.address() as usize as *mut c_void;
        let (dtype, op) = (dtype_code(buffer.dtype()), op_code(op));
        // SAFETY: the communicator is ready (its owner waits for that), and `buffer` is what its constructor promises:
        // memory of this device that lives until the guard is dropped. The stream belongs to the same context.
        let result = unsafe {
            (self.nccl.all_reduce)(
                address,
                address,
                buffer.len(),
                dtype,
                op,
                self.handle,
                stream.raw().cast(),
            )
        };
        self.nccl.outcome("ncclAllReduce", result)
    }

    /// A handle for the case that a call of this communicator does not return.
    pub(super) fn abort_handle(&self) -> AbortHandle {
        AbortHandle { nccl: self.nccl, handle: self.handle }
    }

    /// Starts to end in order: operations in flight are finished. Once the state is `Ready` again, call `destroy`.
    pub(super) fn finalize(&mut self) -> Result<CommunicatorState, String> {
        // SAFETY: the handle is alive.
        let result = unsafe { (self.nccl.comm_finalize)(self.handle) };
        self.nccl.outcome("ncclCommFinalize", result)
    }

    /// Destroys the communicator, after `finalize`.
    pub(super) fn destroy(self) -> Result<(), String> {
        // SAFETY: the handle is alive and not used afterwards, because `self` is consumed.
        let result = unsafe { (self.nccl.comm_destroy)(self.handle) };
        self.nccl.outcome("ncclCommDestroy", result).map(drop)
    }

    /// Aborts: whatever of this communicator runs on the device ends soon, without a result. May take some time.
    pub(super) fn abort(self) -> Result<(), String> {
        // SAFETY: as for `destroy`.
        let result = unsafe { (self.nccl.comm_abort)(self.handle) };
        self.nccl.outcome("ncclCommAbort", result).map(drop)
    }
}

/// A communicator with a call that does not return.
pub(super) struct AbortHandle {
    nccl: &'static Nccl,
    handle: Handle,
}

// SAFETY: as for `Communicator`.
unsafe impl Send for AbortHandle {}
// SAFETY: it is never used through a shared reference.
unsafe impl Sync for AbortHandle {}

impl AbortHandle {
    /// Like [`Communicator::abort`], while the call hangs; the call then returns.
    ///
    /// # Safety
    /// Any call of the communicator in progress hangs: NCCL allows this one beside it. No call is made afterwards.
    pub(super) unsafe fn abort(self) -> Result<(), String> {
        // SAFETY: the handle is alive, because only `destroy` and `abort` end it, and the caller calls neither.
        let result = unsafe { (self.nccl.comm_abort)(self.handle) };
        self.nccl.outcome("ncclCommAbort", result).map(drop)
    }
}

/// `ncclDataType_t`.
const fn dtype_code(dtype: DType) -> c_int {
    match dtype {
        DType::U8 => 1,
        DType::I32 => 2,
        DType::I64 => 4,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
    }
}

/// `ncclRedOp_t`.
const fn op_code(op: ReduceOp) -> c_int {
    match op {
        ReduceOp::Sum => 0,
        ReduceOp::Max => 2,
        ReduceOp::Min => 3,
        ReduceOp::Mean => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nccl.h of 2.18: how a library of any later version reads the first 48 bytes.
    #[test]
    fn the_configuration_has_the_layout_of_its_version() {
        assert_eq!(size_of::<CommunicatorConfig>(), 48);
        let offsets = [
            std::mem::offset_of!(CommunicatorConfig, blocking),
            std::mem::offset_of!(CommunicatorConfig, max_ctas),
            std::mem::offset_of!(CommunicatorConfig, net_name),
            std::mem::offset_of!(CommunicatorConfig, split_share),
        ];
        assert_eq!(offsets, [16, 28, 32, 40]);
    }
}
