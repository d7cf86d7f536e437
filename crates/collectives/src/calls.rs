//! An engine's record of a rank's calls, and of its step and phase, for failure reports. Other threads read it while a call runs.

use super::header::Header;
use super::{CallRecord, CommError, CommErrorKind, StepPhase, messages};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime};

/// Number of calls kept.
pub(super) const HISTORY: usize = 64;

/// Ignores poisoning: a thread that panics while it holds the lock leaves nothing half-done that matters to engines.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same, unless another thread holds the lock.
pub(super) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A call that this rank has made.
#[derive(Clone, Debug)]
struct RecordedCall {
    header: Header,
    place: StepPhase,
    started: SystemTime,
    /// None while the call runs, and for the call that failed.
    took: Option<Duration>,
    clock: Instant,
}

impl RecordedCall {
    fn record(&self) -> CallRecord {
        let Header { operation, sequence, dtype, count, algorithm, .. } = self.header;
        CallRecord {
            call: self.header.to_string(),
            operation: operation.name(),
            sequence,
            dtype,
            count,
            algorithm: algorithm.name(),
            place: self.place,
            started: self.started,
            took: self.took,
        }
    }
}

#[derive(Debug)]
pub(super) struct CallLog {
    pub rank: usize,
    calls: Mutex<VecDeque<RecordedCall>>,
    place: Mutex<StepPhase>,
}

impl CallLog {
    pub(super) fn new(rank: usize) -> Self {
        Self { rank, calls: Mutex::new(VecDeque::with_capacity(HISTORY)), place: Mutex::default() }
    }

    pub(super) fn started(&self, header: Header) {
        let mut calls = lock(&self.calls);
        if calls.len() == HISTORY {
            calls.pop_front();
        }
        calls.push_back(RecordedCall {
            header,
            place: self.place(),
            started: SystemTime::now(),
            took: None,
            clock: Instant::now(),
        });
    }

    pub(super) fn finished(&self) {
        if let Some(call) = lock(&self.calls).back_mut() {
            call.took = Some(call.clock.elapsed());
        }
    }

    /// Marks call `sequence` as done. It need not be the last one: calls on a device finish asynchronously.
    #[cfg(feature = "nccl")]
    pub(super) fn finished_call(&self, sequence: u64) {
        let mut calls = lock(&self.calls);
        if let Some(call) = calls.iter_mut().find(|c| c.header.sequence == sequence) {
            call.took = Some(call.clock.elapsed());
        }
    }

    /// Drops all records: calls of the setup are not a user's.
    pub(super) fn clear(&self) {
        lock(&self.calls).clear();
    }

    pub(super) fn running(&self) -> Option<Header> {
        lock(&self.calls).back().filter(|c| c.took.is_none()).map(|c| c.header)
    }

    /// The error of this rank when its group ends: the cause, and the call that was running.
    pub(super) fn error(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        let running = self.running().map(|call| messages::was_in(self.rank, &call.to_string(), self.place()));
        CommError::new(kind, culprit, format!("{cause}{}", running.unwrap_or_default()))
    }

    /// This rank's group call with this sequence number, if it is still recorded.
    pub(super) fn group_call(&self, sequence: u64) -> Option<Header> {
        let calls = lock(&self.calls);
        let mut group_calls = calls.iter().rev().map(|c| c.header).filter(|h| !h.operation.is_pairwise());
        group_calls.find(|h| h.sequence == sequence)
    }

    pub(super) fn note(&self, place: StepPhase) {
        *lock(&self.place) = place;
    }

    pub(super) fn place(&self) -> StepPhase {
        *lock(&self.place)
    }

    pub(super) fn history(&self) -> Vec<CallRecord> {
        lock(&self.calls).iter().map(RecordedCall::record).collect()
    }
}
