//! What the threads of a rank share: the control connections, the first failure, and the record of calls. A call
//! holds the engine's lock while it waits; aborting or asking for the status must not, so these stand beside it.

use super::control::Control;
use super::header::Header;
use crate::comm::{CommError, CommErrorKind, DType};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
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

/// A call that this rank has made, for reports of failures. Displays as `all_reduce #12 (sum of 1024 f32)`.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub(super) header: Header,
    pub started: SystemTime,
    /// None while it runs, and for the call that failed.
    pub took: Option<Duration>,
    clock: Instant,
}

impl CallRecord {
    /// `all_reduce`, `broadcast`, …
    pub fn operation(&self) -> &'static str {
        self.header.operation.name()
    }
    /// Group calls count from 1; send and recv for each pair and direction of their own.
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }
    pub fn dtype(&self) -> DType {
        self.header.dtype
    }
    /// Elements of the buffer (of one rank's block for gathers and scatters).
    pub fn count(&self) -> u64 {
        self.header.count
    }
}

impl std::fmt::Display for CallRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.header.fmt(f)
    }
}

pub(super) struct Shared {
    pub rank: usize,
    /// By rank; this rank's own entry is None.
    pub control: Vec<Option<ControlSocket>>,
    failed: OnceLock<CommError>,
    calls: Mutex<VecDeque<CallRecord>>,
    /// A byte written to the first end wakes the call that polls the second.
    wake: (UnixStream, UnixStream),
}

impl Shared {
    pub(super) fn new(rank: usize, control: Vec<Option<ControlSocket>>) -> io::Result<Self> {
        let wake = UnixStream::pair()?;
        wake.0.set_nonblocking(true)?;
        let calls = Mutex::new(VecDeque::with_capacity(HISTORY));
        Ok(Self { rank, control, failed: OnceLock::new(), calls, wake })
    }

    pub(super) fn failure(&self) -> Option<CommError> {
        self.failed.get().cloned()
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
                Some(call) => format!("; rank {} was in {call}", self.rank),
                None => String::new(),
            };
            CommError::new(kind, culprit, format!("{cause}{doing}"))
        });
        if first {
            let frame = Control::Abort { kind, culprit, cause }.frame();
            self.control.iter().flatten().for_each(|c| c.send(&frame));
            let _ = (&self.wake.0).write(&[1]);
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
        calls.push_back(CallRecord { header, started: SystemTime::now(), took: None, clock: Instant::now() });
    }

    pub(super) fn finished(&self) {
        if let Some(call) = lock(&self.calls).back_mut() {
            call.took = Some(call.clock.elapsed());
        }
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

    pub(super) fn last(&self) -> Option<CallRecord> {
        lock(&self.calls).back().cloned()
    }

    pub(super) fn history(&self) -> Vec<CallRecord> {
        lock(&self.calls).iter().cloned().collect()
    }
}
