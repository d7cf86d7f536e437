//! What the threads of a rank share: the control connections, the first failure, and the record of calls. A call
//! holds the engine's lock while it waits; aborting or asking for the status must not, so these stand beside it.

use super::control::Control;
use super::header::Header;
use super::shm::Arena;
use crate::comm::{CallRecord, CommError, CommErrorKind, Place};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Calls that are remembered.
const HISTORY: usize = 64;

/// A thread that panicked with the lock left nothing half-done that matters here.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) struct ControlSocket {
    pub stream: TcpStream,
    /// Frames of two threads must not mingle.
    writing: Mutex<()>,
}

impl ControlSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, writing: Mutex::new(()) }
    }

    /// Frames are small and rare: one that finds no room goes to a peer that reads nothing anyway, and is dropped.
    pub(super) fn send(&self, frame: &[u8]) {
        let _guard = lock(&self.writing);
        loop {
            match (&self.stream).write(frame) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(n) if n == frame.len() => return,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // Half a frame would make nonsense of the next.
                Ok(_) | Err(_) => return drop(self.stream.shutdown(Shutdown::Write)),
            }
        }
    }

    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buf)
    }
}

/// A call that this rank has made.
#[derive(Clone, Debug)]
struct Call {
    header: Header,
    place: Place,
    started: SystemTime,
    /// None while it runs, and for the call that failed.
    took: Option<Duration>,
    clock: Instant,
}

impl Call {
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

pub(super) struct Shared {
    pub rank: usize,
    /// By rank; this rank's own entry is None.
    pub control: Vec<Option<ControlSocket>>,
    failed: OnceLock<CommError>,
    /// The host's memory, once it is set up.
    arena: OnceLock<Arc<Arena>>,
    calls: Mutex<VecDeque<Call>>,
    place: Mutex<Place>,
    /// A byte written to the first end wakes the call that polls the second.
    wake: (UnixStream, UnixStream),
}

impl Shared {
    pub(super) fn new(rank: usize, control: Vec<Option<ControlSocket>>) -> io::Result<Self> {
        let wake = UnixStream::pair()?;
        wake.0.set_nonblocking(true)?;
        let calls = Mutex::new(VecDeque::with_capacity(HISTORY));
        Ok(Self {
            rank,
            control,
            failed: OnceLock::new(),
            arena: OnceLock::new(),
            calls,
            place: Mutex::default(),
            wake,
        })
    }

    pub(super) fn failure(&self) -> Option<CommError> {
        self.failed.get().cloned()
    }

    pub(super) fn set_arena(&self, arena: Arena) {
        // Set up once, before the first call.
        let _ = self.arena.set(Arc::new(arena));
    }

    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.get()
    }

    /// Wakes a rank of this host (counted within it) that may be waiting for what has just been put into memory.
    pub(super) fn ring(&self, local: usize) {
        let Some(arena) = self.arena() else { return };
        if arena.ring(local)
            && let Some(control) = self.control.get(arena.members[local]).and_then(Option::as_ref)
        {
            control.send(&Control::Bell.frame());
        }
    }

    /// Wakes all others of this host.
    pub(super) fn ring_others(&self) {
        if let Some(arena) = self.arena() {
            arena.others().for_each(|local| self.ring(local));
        }
    }

    /// Readable once the group has failed.
    pub(super) fn wake_end(&self) -> &UnixStream {
        &self.wake.1
    }

    /// Ends the group on all ranks, unless it has ended before; returns the error that counts. `cause` is worded
    /// for every rank; what this rank was doing is added here.
    pub(super) fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        let mut first = false;
        let error = self.failed.get_or_init(|| {
            first = true;
            let doing = match self.running() {
                Some(call) => format!("; rank {} was in {call}, {}", self.rank, self.place()),
                None => String::new(),
            };
            CommError::new(kind, culprit, format!("{cause}{doing}"))
        });
        if first {
            let frame = Control::Abort { kind, culprit, cause }.frame();
            self.control.iter().flatten().for_each(|c| c.send(&frame));
            let _ = (&self.wake.0).write(&[1]);
            if let Some(arena) = self.arena() {
                arena.mark_failed();
                arena.ring_all();
            }
        }
        error.clone()
    }

    /// What is left of a process that was killed says nothing: from now on this rank fails without a word.
    #[cfg(test)]
    pub(super) fn silence(&self) {
        let error = CommError::new(CommErrorKind::Aborted, Some(self.rank), "killed by the test");
        assert!(self.failed.set(error).is_ok(), "the group had failed before");
    }

    pub(super) fn started(&self, header: Header) {
        let mut calls = lock(&self.calls);
        if calls.len() == HISTORY {
            calls.pop_front();
        }
        calls.push_back(Call {
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

    /// Calls that were no user's.
    pub(super) fn forget(&self) {
        lock(&self.calls).clear();
    }

    fn running(&self) -> Option<Header> {
        lock(&self.calls).back().filter(|c| c.took.is_none()).map(|c| c.header)
    }

    /// This rank's group call of that number, if it is remembered.
    pub(super) fn group_call(&self, sequence: u64) -> Option<Header> {
        let calls = lock(&self.calls);
        let mut group_calls = calls.iter().rev().map(|c| c.header).filter(|h| !h.operation.is_pairwise());
        group_calls.find(|h| h.sequence == sequence)
    }

    pub(super) fn note(&self, place: Place) {
        *lock(&self.place) = place;
        if let Some(arena) = self.arena() {
            arena.note(place);
        }
    }

    pub(super) fn place(&self) -> Place {
        *lock(&self.place)
    }

    pub(super) fn last(&self) -> Option<CallRecord> {
        lock(&self.calls).back().map(Call::record)
    }

    pub(super) fn history(&self) -> Vec<CallRecord> {
        lock(&self.calls).iter().map(Call::record).collect()
    }
}
