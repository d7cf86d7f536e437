//! Collectives on device memory, for engines that have them, and the slice of device memory that a caller passes in.

#![allow(unsafe_code)]

use super::{CommError, DType, ReduceOp};
use std::any::Any;

/// Elements in the memory of the group's device, with a guard that keeps the memory alive.
pub struct DeviceSlice {
    address: u64,
    len: usize,
    dtype: DType,
    keep: Box<dyn Any + Send>,
}

impl DeviceSlice {
    /// # Safety
    /// * `address` is the address of `len` elements of `dtype`, aligned for the type, in memory that this process has
    ///   allocated in the primary context of the group's device.
    /// * Until `keep` is dropped, that memory is neither freed nor reused.
    /// * Work that reads or writes the elements before the collective has been *launched* (handed to the driver, not
    ///   only queued in this process) when the slice is passed on. Work that does so after the collective is launched
    ///   after [`DeviceCollectives::fence`].
    pub unsafe fn new(address: u64, len: usize, dtype: DType, keep: Box<dyn Any + Send>) -> Self {
        Self { address, len, dtype, keep }
    }

    /// The address of the first element in the device's memory.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Returns only the guard, once the address has been passed on.
    pub fn into_guard(self) -> Box<dyn Any + Send> {
        self.keep
    }
}

impl std::fmt::Debug for DeviceSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} at {:#x}", self.len, self.dtype, self.address)
    }
}

/// Collectives on device memory. They are enqueued in stream order and return before they are done. All ranks make the
/// same calls (length, type and operation) in the same order.
///
/// A failure ends the group on all ranks, as for any collective. The device then continues with whatever the buffers
/// hold, so that a thread that waits for the device returns. Results read from the device are valid only if [`check`]
/// returns `Ok` after the read.
///
/// [`check`]: DeviceCollectives::check
pub trait DeviceCollectives: Send + Sync {
    /// Reduces `buffer` over all ranks in place, after all work launched on the device so far. The result is ordered
    /// before work that is launched after [`fence`](DeviceCollectives::fence). The guard of `buffer` is dropped on
    /// another thread, once the device is done with the memory.
    fn all_reduce(&self, buffer: DeviceSlice, op: ReduceOp) -> Result<(), CommError>;
    /// Makes all work launched on the device from now on wait for the collectives enqueued so far.
    fn fence(&self) -> Result<(), CommError>;
    /// The group's failure, if there is one. Call it after results have been read from the device.
    fn check(&self) -> Result<(), CommError>;
}
