//! NCCL's C interface, loaded at run time. With `driver`, the only unsafe code of this engine. Types are declared here, not
//! taken from `cudarc`: its layouts are those of one version, and results that are an enum there may hold a value that a
//! later NCCL has added.

#![allow(unsafe_code)]

use super::driver::Stream;
use super::version::Version;
use crate::comm::{DType, DeviceSlice, ReduceOp};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Runtime packages bring the first, the second comes with the headers.
const NAMES: [&CStr; 2] = [c"libnccl.so.2", c"libnccl.so"];
/// The first whose configuration has all fields of [`Config`]; later ones take it as it is.
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

/// `ncclConfig_t` as of [`OLDEST`]: a library reads as many bytes as `size` says, and gives its defaults to all fields that
/// `version` does not know.
#[repr(C)]
struct Config {
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

/// The functions that are used, by their names without `nccl`.
pub(super) struct Nccl {
    version: c_int,
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> c_int,
    comm_init_rank_config: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int, *mut Config) -> c_int,
    comm_get_async_error: unsafe extern "C" fn(Handle, *mut c_int) -> c_int,
    comm_finalize: unsafe extern "C" fn(Handle) -> c_int,
    comm_destroy: unsafe extern "C" fn(Handle) -> c_int,
    comm_abort: unsafe extern "C" fn(Handle) -> c_int,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, *mut c_void) -> c_int,
    get_error_string: unsafe extern "C" fn(c_int) -> *const c_char,
    get_last_error: unsafe extern "C" fn(Handle) -> *const c_char,
}

/// An opened library, which stays open.
struct Opened(*mut c_void);

impl Opened {
    fn open() -> Result<Self, String> {
        let mut why = Vec::new();
        for name in NAMES {
            // SAFETY: `name` is a C string. What the library runs as it is loaded is NCCL's own.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
            if !handle.is_null() {
                return Ok(Self(handle));
            }
            // SAFETY: `dlerror` gives null or a C string that lives until this thread's next call of its kind.
            let error = unsafe { words(libc::dlerror()) };
            why.push(error.unwrap_or_else(|| name.to_string_lossy().into_owned()));
        }
        Err(format!(
            "NCCL is not there: {}; install it, or add its folder to LD_LIBRARY_PATH",
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
            return Err(format!("NCCL has no {}: 2.18 or later is needed", name.to_string_lossy()));
        }
        // SAFETY: sizes are equal, and a symbol that is not null is a function of type `F`, by the caller's word.
        Ok(unsafe { std::mem::transmute_copy(&symbol) })
    }
}

/// # Safety
/// `text` is null or a C string that lives for the time of this call.
unsafe fn words(text: *const c_char) -> Option<String> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

impl Nccl {
    /// The machine's library, loaded once; what is wrong with it, if it cannot be used.
    pub(super) fn load() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Result<Nccl, String>> = OnceLock::new();
        LOADED.get_or_init(Self::open).as_ref().map_err(Clone::clone)
    }

    fn open() -> Result<Self, String> {
        let library = Opened::open()?;
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
            _ => Err(format!("NCCL is version {}; 2.18 or later is needed", Version(version))),
        }
    }

    pub(super) fn version(&self) -> Version {
        Version(self.version)
    }

    pub(super) fn unique_id(&self) -> Result<UniqueId, String> {
        let mut id = UniqueId([0; 128]);
        // SAFETY: the function writes 128 bytes to where it is told.
        let result = unsafe { (self.get_unique_id)(&mut id) };
        self.outcome("ncclGetUniqueId", result).map(|_| id)
    }

    /// What a call has come to.
    fn outcome(&self, call: &str, result: c_int) -> Result<State, String> {
        match result {
            SUCCESS => Ok(State::Ready),
            IN_PROGRESS => Ok(State::InProgress),
            _ => {
                // Of no communicator: the words are the same, and the one that failed may have been aborted meanwhile.
                let none = std::ptr::null_mut();
                // SAFETY: both give C strings that stay, or null; by NCCL's documentation the second does not look at its argument.
                let (error, last) =
                    unsafe { (words((self.get_error_string)(result)), words((self.get_last_error)(none))) };
                let error = error.unwrap_or_else(|| format!("error {result}"));
                let last = last.map(|l| l.trim().to_owned()).filter(|l| !l.is_empty());
                Err(format!("{call}: {error}{}", last.map_or_else(String::new, |l| format!(" ({l})"))))
            }
        }
    }
}

/// Of a communicator that does not block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// What was called last goes on in a thread of NCCL's; nothing else may be called until it is done.
    InProgress,
}

/// This rank's end of the communicator, until it is destroyed or aborted. Dropped without either it leaks, as it must: the
/// device may still work for it.
pub(super) struct Communicator {
    nccl: &'static Nccl,
    handle: Handle,
}

// SAFETY: NCCL's communicators belong to no thread. One call at a time is the rule, which `&mut self` keeps.
unsafe impl Send for Communicator {}

impl Communicator {
    /// Begins to join, on the device of the calling thread's current context, `world` ranks that have the same `id`.
    pub(super) fn begin(
        nccl: &'static Nccl,
        world: usize,
        id: UniqueId,
        rank: usize,
    ) -> Result<Self, String> {
        let mut config = Config {
            size: size_of::<Config>(),
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
        // SAFETY: both places are valid for the call, which copies the configuration and writes the handle before it
        // returns, also in mode blocking = 0.
        let result = unsafe {
            (nccl.comm_init_rank_config)(&mut handle, world as c_int, id, rank as c_int, &mut config)
        };
        nccl.outcome("ncclCommInitRankConfig", result)?;
        if handle.is_null() {
            return Err("ncclCommInitRankConfig gave no communicator".to_owned());
        }
        Ok(Self { nccl, handle })
    }

    /// How the last call goes on, or the failure that NCCL has met since.
    pub(super) fn state(&mut self) -> Result<State, String> {
        let mut state = SUCCESS;
        // SAFETY: the handle is alive, the place valid.
        let result = unsafe { (self.nccl.comm_get_async_error)(self.handle, &mut state) };
        self.nccl.outcome("ncclCommGetAsyncError", result)?;
        self.nccl.outcome("NCCL", state)
    }

    /// Enqueues the reduction of `buffer` over all ranks, in place. Unless this fails, the caller keeps the buffer's
    /// guard until `stream` has gone past; if it fails, for ever.
    pub(super) fn all_reduce(
        &mut self,
        buffer: &DeviceSlice,
        op: ReduceOp,
        stream: &Stream,
    ) -> Result<State, String> {
        let address = buffer.address() as usize as *mut c_void;
        let (dtype, op) = (dtype_code(buffer.dtype()), op_code(op));
        // SAFETY: the communicator is ready (its owner waits for that) and `buffer` what its constructor promises: memory
        // of this device that lives until the guard is dropped. The stream is of the same context.
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

    /// For when a call of this one's does not come back.
    pub(super) fn stuck(&self) -> Stuck {
        Stuck { nccl: self.nccl, handle: self.handle }
    }

    /// Begins to end in peace: what is under way is finished. When the state is `Ready` again, `destroy`.
    pub(super) fn finalize(&mut self) -> Result<State, String> {
        // SAFETY: the handle is alive.
        let result = unsafe { (self.nccl.comm_finalize)(self.handle) };
        self.nccl.outcome("ncclCommFinalize", result)
    }

    /// After `finalize`.
    pub(super) fn destroy(self) -> Result<(), String> {
        // SAFETY: the handle is alive and is not used after, for `self` is gone.
        let result = unsafe { (self.nccl.comm_destroy)(self.handle) };
        self.nccl.outcome("ncclCommDestroy", result).map(drop)
    }

    /// Gives up: whatever of this communicator runs on the device ends soon, with no result. May take its time.
    pub(super) fn abort(self) -> Result<(), String> {
        // SAFETY: as for `destroy`.
        let result = unsafe { (self.nccl.comm_abort)(self.handle) };
        self.nccl.outcome("ncclCommAbort", result).map(drop)
    }
}

/// A communicator that a call does not come back to.
pub(super) struct Stuck {
    nccl: &'static Nccl,
    handle: Handle,
}

// SAFETY: as for `Communicator`.
unsafe impl Send for Stuck {}
// SAFETY: nothing is done with it through a shared reference.
unsafe impl Sync for Stuck {}

impl Stuck {
    /// As [`Communicator::abort`], from beside the call, which then comes back.
    ///
    /// # Safety
    /// Whatever call of the communicator's is under way hangs: NCCL lets this one be made beside it. None is made after it.
    pub(super) unsafe fn abort(self) -> Result<(), String> {
        // SAFETY: the handle is alive, for only `destroy` and `abort` end it, which the caller does not call.
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

    /// nccl.h of 2.18: what a library of any later version reads the first 48 bytes as.
    #[test]
    fn the_configuration_has_the_layout_of_its_version() {
        assert_eq!(size_of::<Config>(), 48);
        let offsets = [
            std::mem::offset_of!(Config, blocking),
            std::mem::offset_of!(Config, max_ctas),
            std::mem::offset_of!(Config, net_name),
            std::mem::offset_of!(Config, split_share),
        ];
        assert_eq!(offsets, [16, 28, 32, 40]);
    }
}
