//! A safe interface to the MPI library: all unsafe code of this engine.
//!
//! MPI's contract is kept in three ways. Every call needs `&mut Library`, of which a process has one, so calls never
//! overlap (MPI_THREAD_SERIALIZED). Memory that MPI reads or writes is handed over to a
//! [`PendingOperation`] and returned when MPI reports that it is done with it; if that never happens,
//! the memory is leaked, because MPI may still write to it.
//! Counts are checked against that memory before the call.

#![allow(unsafe_code)]

use crate::reduce::{self, Reduction};
use crate::{DType, Element, ReduceOp, SliceMut, SliceRef};
use mpi::ffi;
use std::ffi::{c_int, c_void};

/// Memory for MPI, aligned for every element type.
pub(super) type AlignedMemory = Box<[u64]>;

/// An MPI error, as MPI's own text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct MpiError(pub String);

pub(super) type Result<T> = std::result::Result<T, MpiError>;

/// The communicators. MPI matches messages within one, so control messages are never matched with data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    Data,
    Control,
}

/// The MPI of this process, between its start and its end.
pub(super) struct Library {
    data: ffi::MPI_Comm,
    control: ffi::MPI_Comm,
    /// Max and min of f32 and f64 in which NaN wins.
    float_ops: [ffi::MPI_Op; 4],
    pub rank: usize,
    pub world: usize,
}

// SAFETY: MPI was started with MPI_THREAD_SERIALIZED, so any thread may call it as long as calls do not overlap; they
// don't, because each takes `&mut Library`. Handles are valid in every thread.
unsafe impl Send for Library {}

/// An operation in flight. Dropped before it is done, it leaks its memory.
pub(super) struct PendingOperation {
    request: ffi::MPI_Request,
    /// What MPI reads, and what it writes: boxes, kept as raw pointers while MPI holds them.
    memory: Option<[*mut [u64]; 2]>,
    done: bool,
}

// SAFETY: the pointers are the only ones to their boxes, and every access to the request needs `&mut Library`.
unsafe impl Send for PendingOperation {}

/// MPI's own name and version; MPI need not be started.
pub(super) fn version() -> std::result::Result<String, String> {
    let text =
        mpi::environment::library_version().map_err(|e| format!("MPI's version is not valid text: {e}"))?;
    // MPICH's text continues with all build options, Open MPI's ends with a NUL.
    let line = text.lines().next().unwrap_or_default().trim_end_matches('\0');
    Ok(line.split_whitespace().collect::<Vec<_>>().join(" ").replace("MPICH Version:", "MPICH"))
}

fn check(code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int {
        return Ok(());
    }
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the buffer has the maximum size that MPI_Error_string may write.
    let found = unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    text.truncate(usize::try_from(length).unwrap_or(0));
    match String::from_utf8(text) {
        Ok(text) if found == ffi::MPI_SUCCESS as c_int && !text.is_empty() => Err(MpiError(text)),
        _ => Err(MpiError(format!("MPI error {code}"))),
    }
}

/// Counts of bytes and elements here are far below 2^31 (see `transfer::STAGE`); more would be a bug.
fn int(n: usize) -> c_int {
    c_int::try_from(n).expect("a chunk has fewer than 2^31 elements")
}

fn datatype(dtype: DType, op: ReduceOp) -> ffi::MPI_Datatype {
    // SAFETY: constants of the C shim, never written. Unsigned types add with wrap-around, as gloo does.
    unsafe {
        match (dtype, op) {
            (DType::F32, _) => ffi::RSMPI_FLOAT,
            (DType::F64, _) => ffi::RSMPI_DOUBLE,
            (DType::I32, ReduceOp::Sum) => ffi::RSMPI_UINT32_T,
            (DType::I32, _) => ffi::RSMPI_INT32_T,
            (DType::I64, ReduceOp::Sum) => ffi::RSMPI_UINT64_T,
            (DType::I64, _) => ffi::RSMPI_INT64_T,
            (DType::U8, _) => ffi::RSMPI_UINT8_T,
            (DType::F16 | DType::BF16, _) => unreachable!("half types are widened before they are reduced"),
        }
    }
}

/// `inout = input op inout`, where NaN wins; MPI's own max and min leave that open.
///
/// # Safety
/// As called by MPI: both point to `*len` elements of `T`.
unsafe extern "C" fn extremum<T: Element, const MAX: bool>(
    input: *mut c_void,
    inout: *mut c_void,
    len: *mut c_int,
    _: *mut ffi::MPI_Datatype,
) {
    const AT_ONCE: usize = 128;
    let over = Reduction { dtype: T::DTYPE, op: if MAX { ReduceOp::Max } else { ReduceOp::Min } };
    // SAFETY: by this function's contract; MPI's two buffers do not overlap and are aligned for their type.
    let (input, inout) = unsafe {
        let len = usize::try_from(*len).unwrap_or(0);
        (
            std::slice::from_raw_parts(input.cast::<T>(), len),
            std::slice::from_raw_parts_mut(inout.cast::<T>(), len),
        )
    };
    let mut left = [T::zeroed(); AT_ONCE];
    for (a, b) in input.chunks(AT_ONCE).zip(inout.chunks_mut(AT_ONCE)) {
        let left = &mut left[..a.len()];
        left.copy_from_slice(a);
        let right = SliceRef::from(&*b).bytes();
        reduce::combine(over, SliceMut::from(&mut *left).bytes_mut(), right, None);
        b.copy_from_slice(left);
    }
}

impl Library {
    /// Sets up what the engine needs; collective. Call it once, on the thread that has just started MPI.
    pub(super) fn open() -> Result<Self> {
        let functions: [ffi::MPI_User_function; 4] = [
            Some(extremum::<f32, true>),
            Some(extremum::<f32, false>),
            Some(extremum::<f64, true>),
            Some(extremum::<f64, false>),
        ];
        // SAFETY: MPI is started and only this thread calls it; every pointer is to a live local.
        unsafe {
            let world = ffi::RSMPI_COMM_WORLD;
            check(ffi::MPI_Comm_set_errhandler(world, ffi::RSMPI_ERRORS_RETURN))?;
            let (mut rank, mut size) = (0, 0);
            check(ffi::MPI_Comm_rank(world, &mut rank))?;
            check(ffi::MPI_Comm_size(world, &mut size))?;
            // Duplicates inherit the error handler.
            let mut comms = [ffi::RSMPI_COMM_NULL; 2];
            for comm in &mut comms {
                check(ffi::MPI_Comm_dup(world, comm))?;
            }
            let mut float_ops = [ffi::RSMPI_MAX; 4];
            for (op, function) in float_ops.iter_mut().zip(functions) {
                // Declared as not commutative, so that they combine in rank order: max(0.0, -0.0) depends on it.
                check(ffi::MPI_Op_create(function, 0, op))?;
            }
            let [data, control] = comms;
            let (rank, world) = (usize::try_from(rank).unwrap_or(0), usize::try_from(size).unwrap_or(1));
            Ok(Self { data, control, float_ops, rank, world })
        }
    }

    fn comm(&self, channel: Channel) -> ffi::MPI_Comm {
        match channel {
            Channel::Data => self.data,
            Channel::Control => self.control,
        }
    }

    fn op(&self, Reduction { dtype, op }: Reduction) -> ffi::MPI_Op {
        match (dtype, op) {
            (DType::F32, ReduceOp::Max) => self.float_ops[0],
            (DType::F32, ReduceOp::Min) => self.float_ops[1],
            (DType::F64, ReduceOp::Max) => self.float_ops[2],
            (DType::F64, ReduceOp::Min) => self.float_ops[3],
            // SAFETY: constants of the C shim, never written.
            (_, ReduceOp::Max) => unsafe { ffi::RSMPI_MAX },
            (_, ReduceOp::Min) => unsafe { ffi::RSMPI_MIN },
            (_, ReduceOp::Sum) => unsafe { ffi::RSMPI_SUM },
            (_, ReduceOp::Mean) => unreachable!("a mean is a sum that the caller divides"),
        }
    }

    /// Hands `memory` (`reads` bytes that MPI reads, and `writes` bytes that it writes) to the operation that `call` starts.
    fn start(
        &mut self,
        memory: [AlignedMemory; 2],
        reads: usize,
        writes: usize,
        call: impl FnOnce(*const c_void, *mut c_void, &mut ffi::MPI_Request) -> c_int,
    ) -> Result<PendingOperation> {
        assert!(reads <= size_of_val(&*memory[0]) && writes <= size_of_val(&*memory[1]), "memory of a call");
        let memory = memory.map(Box::into_raw);
        // SAFETY: a constant of the C shim, never written.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // A call that fails may have kept the pointers, so the memory is leaked.
        check(call(memory[0].cast_const().cast(), memory[1].cast(), &mut request))?;
        Ok(PendingOperation { request, memory: Some(memory), done: false })
    }

    /// `memory[1]` receives the reduction of every rank's `memory[0]`, on all ranks or only on `root`; by a type and an
    /// operation that MPI has (no half type, no mean).
    pub(super) fn reduce(
        &mut self,
        memory: [AlignedMemory; 2],
        count: usize,
        over: Reduction,
        root: Option<usize>,
    ) -> Result<PendingOperation> {
        let (dtype, op, comm) = (datatype(over.dtype, over.op), self.op(over), self.data);
        let bytes = count * over.dtype.size();
        // SAFETY: both buffers hold `count` elements (checked in `start`) and belong to MPI until the request is done.
        self.start(memory, bytes, bytes, |from, to, request| unsafe {
            match root {
                None => ffi::MPI_Iallreduce(from, to, int(count), dtype, op, comm, request),
                Some(root) => ffi::MPI_Ireduce(from, to, int(count), dtype, op, int(root), comm, request),
            }
        })
    }

    /// `memory[0]` holds a block of `count` elements for each rank; `memory[1]` receives the reduction of this rank's block.
    pub(super) fn reduce_scatter(
        &mut self,
        memory: [AlignedMemory; 2],
        count: usize,
        over: Reduction,
    ) -> Result<PendingOperation> {
        let (dtype, op, comm) = (datatype(over.dtype, over.op), self.op(over), self.data);
        let bytes = count * over.dtype.size();
        // SAFETY: as in `reduce`; the memory to read has a block for each rank.
        self.start(memory, bytes * self.world, bytes, |from, to, request| unsafe {
            ffi::MPI_Ireduce_scatter_block(from, to, int(count), dtype, op, comm, request)
        })
    }

    /// `memory[1]` receives `bytes` bytes of every rank's `memory[0]`, by rank.
    pub(super) fn all_gather(
        &mut self,
        memory: [AlignedMemory; 2],
        bytes: usize,
    ) -> Result<PendingOperation> {
        let comm = self.data;
        // SAFETY: the memory to write has a block for each rank (checked in `start`).
        self.start(memory, bytes, bytes * self.world, |from, to, request| unsafe {
            let byte = ffi::RSMPI_UINT8_T;
            ffi::MPI_Iallgather(from, int(bytes), byte, to, int(bytes), byte, comm, request)
        })
    }

    /// Copies the first `bytes` bytes of `root`'s `memory` to every rank's.
    pub(super) fn broadcast(
        &mut self,
        memory: AlignedMemory,
        bytes: usize,
        root: usize,
    ) -> Result<PendingOperation> {
        let comm = self.data;
        // SAFETY: the buffer holds `bytes` bytes (checked in `start`) and belongs to MPI until the request is done.
        self.start([Box::default(), memory], 0, bytes, |_, buffer, request| unsafe {
            ffi::MPI_Ibcast(buffer, int(bytes), ffi::RSMPI_UINT8_T, int(root), comm, request)
        })
    }

    pub(super) fn send(
        &mut self,
        channel: Channel,
        memory: AlignedMemory,
        bytes: usize,
        to: usize,
    ) -> Result<PendingOperation> {
        let comm = self.comm(channel);
        // SAFETY: as in `broadcast`.
        self.start([memory, Box::default()], bytes, 0, |buffer, _, request| unsafe {
            ffi::MPI_Isend(buffer, int(bytes), ffi::RSMPI_UINT8_T, int(to), 0, comm, request)
        })
    }

    /// Receives a message of at most `bytes` bytes, `from` one rank or from any.
    pub(super) fn recv(
        &mut self,
        channel: Channel,
        memory: AlignedMemory,
        bytes: usize,
        from: Option<usize>,
    ) -> Result<PendingOperation> {
        let comm = self.comm(channel);
        // SAFETY: as in `broadcast`.
        self.start([Box::default(), memory], 0, bytes, |_, buffer, request| unsafe {
            let from = from.map_or(ffi::RSMPI_ANY_SOURCE, int);
            ffi::MPI_Irecv(buffer, int(bytes), ffi::RSMPI_UINT8_T, from, 0, comm, request)
        })
    }

    /// Whether `pending` is done. Every test also advances all other operations in flight.
    pub(super) fn test(&mut self, pending: &mut PendingOperation) -> Result<bool> {
        if !pending.done {
            let mut flag = 0;
            // SAFETY: the request came from MPI and was not done before.
            check(unsafe { ffi::MPI_Test(&mut pending.request, &mut flag, ffi::RSMPI_STATUS_IGNORE) })?;
            pending.done = flag != 0;
        }
        Ok(pending.done)
    }

    /// Cancels a `recv`. (Sends and collectives cannot be cancelled.)
    pub(super) fn cancel(&mut self, mut pending: PendingOperation) -> Result<()> {
        if !self.test(&mut pending)? {
            // SAFETY: the request is live; MPI completes a cancelled receive at once, without the peer.
            unsafe {
                check(ffi::MPI_Cancel(&mut pending.request))?;
                check(ffi::MPI_Wait(&mut pending.request, ffi::RSMPI_STATUS_IGNORE))?;
            }
            pending.done = true;
        }
        Ok(())
    }
}

impl PendingOperation {
    /// The memory of a completed operation: what MPI read, and what it wrote.
    pub(super) fn take(mut self) -> [AlignedMemory; 2] {
        assert!(self.done, "MPI still owns this memory");
        let memory = self.memory.take().expect("taken once");
        // SAFETY: they came from `Box::into_raw` in `start`, and MPI is done with them.
        memory.map(|words| unsafe { Box::from_raw(words) })
    }
}

impl Drop for PendingOperation {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take().filter(|_| self.done) {
            // SAFETY: as in `take`.
            memory.into_iter().for_each(|words| drop(unsafe { Box::from_raw(words) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Element, const MAX: bool>(input: &[T], inout: &[T]) -> Vec<T> {
        let (mut input, mut inout) = (input.to_vec(), inout.to_vec());
        let mut len = int(input.len());
        // SAFETY: both are `len` elements long; the data type is not used.
        unsafe {
            let (a, b) = (input.as_mut_ptr().cast(), inout.as_mut_ptr().cast());
            extremum::<T, MAX>(a, b, &mut len, std::ptr::null_mut());
        }
        inout
    }

    #[test]
    fn nan_wins_on_either_side_and_lengths_need_not_be_round() {
        let n = 300;
        let a: Vec<f32> = (0..n).map(|i| if i == 7 { f32::NAN } else { i as f32 }).collect();
        let b: Vec<f32> = (0..n).map(|i| if i == 200 { f32::NAN } else { 150.0 }).collect();
        let (max, min) = (combined::<f32, true>(&a, &b), combined::<f32, false>(&a, &b));
        for i in 0..n {
            match i {
                7 | 200 => assert!(max[i].is_nan() && min[i].is_nan(), "{i}"),
                _ => assert_eq!((max[i], min[i]), ((i as f32).max(150.0), (i as f32).min(150.0)), "{i}"),
            }
        }
        assert_eq!(combined::<f64, true>(&[1.0, -2.0], &[0.5, 3.0]), [1.0, 3.0]);
        assert_eq!(combined::<f64, true>(&[], &[]), [0.0; 0]);
    }

    #[test]
    fn the_version_is_known_before_mpi_is_initialized() {
        let version = version().unwrap();
        assert!(version.contains("MPI") && !version.contains(['\n', '\t', '\0']), "{version:?}");
    }
}
