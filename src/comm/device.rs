//! Collectives on the memory of a device, for engines that have them, and the slice of that memory that a caller lends.

#![allow(unsafe_code)]

use super::{CommError, DType, ReduceOp};
use std::any::Any;

/// Elements in the memory of the group's device, and the guard that keeps them there.
pub struct DeviceSlice {
    address: u64,
    len: usize,
    dtype: DType,
    keep: Box<dyn Any + Send>,
}

impl DeviceSlice {
    /// # Safety
    /// * `address` is that of `len` elements of `dtype`, aligned for them, in memory that this process has allocated in
    ///   the primary context of the group's device.
    /// * Until `keep` is dropped, that memory is neither freed nor given to anything else.
    /// * Whatever reads or writes the elements before the collective has been *launched* (handed to the driver, not only
    ///   queued in this process) when the slice is passed on; whatever does so after it is launched after
    ///   [`DeviceCollectives::fence`].
    pub unsafe fn new(address: u64, len: usize, dtype: DType, keep: Box<dyn Any + Send>) -> Self {
        Self { address, len, dtype, keep }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The guard alone, when the address has been handed on.
    pub fn into_guard(self) -> Box<dyn Any + Send> {
        self.keep
    }
}

impl std::fmt::Debug for DeviceSlice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} at {:#x}", self.len, self.dtype, self.address)
    }
}

/// Collectives on device memory, enqueued in stream order: they return before they are done. All ranks make the same
/// calls (length, type and operation) in the same order.
///
/// A failure ends the group on all ranks, as that of any collective. The device's work then goes on with whatever is in
/// the buffers, so that a thread that waits for the device returns; what it has read counts only if [`check`] is `Ok`
/// after it.
///
/// [`check`]: DeviceCollectives::check
pub trait DeviceCollectives: Send + Sync {
    /// Reduces `buffer` over all ranks in place, after all work that has been launched on the device so far. The result
    /// is ordered before whatever is launched on the device after [`fence`](DeviceCollectives::fence). The guard of
    /// `buffer` is dropped once the device is done with it, on another thread.
    fn all_reduce(&self, buffer: DeviceSlice, op: ReduceOp) -> Result<(), CommError>;
    /// Makes all work that is launched on the device from now on wait for the collectives so far.
    fn fence(&self) -> Result<(), CommError>;
    /// The group's failure, if there is one: to be asked after results have been read from the device.
    fn check(&self) -> Result<(), CommError>;
}
