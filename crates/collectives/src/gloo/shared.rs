//! What the threads of a rank share: the control connections, the first failure, and the record of calls. A call holds
//! the engine's lock while it waits; `abort` and status queries must not wait for that lock, so these are kept outside
//! of it.

use super::control::Control;
use super::shm::Arena;
use crate::calls::{CallLog, lock};
use crate::execute;
use crate::{CommError, CommErrorKind, StepPhase};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

pub(super) struct ControlSocket {
    pub stream: TcpStream,
    /// Keeps frames of two threads from being interleaved.
    writing: Mutex<()>,
}

impl ControlSocket {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, writing: Mutex::new(()) }
    }

    /// Frames are small and rare. One that finds no room is dropped: its peer reads nothing anyway.
    pub(super) fn send(&self, frame: &[u8]) {
        let _guard = lock(&self.writing);
        loop {
            match (&self.stream).write(frame) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Ok(n) if n == frame.len() => return,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // After a partial frame, the next one could not be decoded.
                Ok(_) | Err(_) => return drop(self.stream.shutdown(Shutdown::Write)),
            }
        }
    }

    pub(super) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buf)
    }
}

pub(super) struct GlooShared {
    /// By rank; this rank's own entry is None.
    pub control: Vec<Option<ControlSocket>>,
    failed: OnceLock<CommError>,
    /// The host's shared memory, once it is set up.
    arena: OnceLock<Arc<Arena>>,
    /// This rank's calls and its place.
    pub calls: CallLog,
    /// Calls made by an engine that uses this group for control.
    pub device_calls: AtomicU64,
    /// Whether the last call may wait as long as its peers are alive.
    pub open_ended: AtomicBool,
    /// A byte written to the first end wakes the call that polls the second.
    wake: (UnixStream, UnixStream),
}

impl execute::Shared for GlooShared {
    fn calls(&self) -> &CallLog {
        &self.calls
    }

    /// Ends the group on all ranks.
    fn fail(&self, kind: CommErrorKind, culprit: Option<usize>, cause: &str) -> CommError {
        let mut first = false;
        let error = self.failed.get_or_init(|| {
            first = true;
            self.calls.error(kind, culprit, cause)
        });
        if first {
            let frame = Control::abort(kind, culprit, cause).frame();
            self.control.iter().flatten().for_each(|c| c.send(&frame));
            let _ = (&self.wake.0).write(&[1]);
            if let Some(arena) = self.arena() {
                arena.mark_failed();
                arena.wake_all();
            }
        }
        error.clone()
    }
}

impl GlooShared {
    pub(super) fn new(rank: usize, control: Vec<Option<ControlSocket>>) -> io::Result<Self> {
        let wake = UnixStream::pair()?;
        wake.0.set_nonblocking(true)?;
        Ok(Self {
            control,
            failed: OnceLock::new(),
            arena: OnceLock::new(),
            calls: CallLog::new(rank),
            device_calls: AtomicU64::new(0),
            open_ended: AtomicBool::new(false),
            wake,
        })
    }

    pub(super) fn failure(&self) -> Option<CommError> {
        self.failed.get().cloned()
    }

    pub(super) fn set_arena(&self, arena: Arena) {
        // Set once, before the first call.
        let _ = self.arena.set(Arc::new(arena));
    }

    pub(super) fn arena(&self) -> Option<&Arc<Arena>> {
        self.arena.get()
    }

    /// Wakes a local rank that may be waiting for what has just been written to shared memory.
    pub(super) fn wake_rank(&self, local: usize) {
        let Some(arena) = self.arena() else { return };
        if arena.wake_rank(local)
            && let Some(control) = self.control.get(arena.members[local]).and_then(Option::as_ref)
        {
            control.send(&Control::Wake.frame());
        }
    }

    /// Wakes all other ranks of this host.
    pub(super) fn wake_others(&self) {
        if let Some(arena) = self.arena() {
            arena.others().for_each(|local| self.wake_rank(local));
        }
    }

    /// Readable once the group has failed.
    pub(super) fn wake_end(&self) -> &UnixStream {
        &self.wake.1
    }

    /// Simulates a killed process: from now on this rank fails without telling its peers.
    #[cfg(test)]
    pub(super) fn fail_silently(&self) {
        let error = CommError::new(CommErrorKind::Aborted, Some(self.calls.rank), "killed by the test");
        assert!(self.failed.set(error).is_ok(), "the group had failed before");
    }

    pub(super) fn note(&self, place: StepPhase) {
        self.calls.note(place);
        if let Some(arena) = self.arena() {
            arena.note(place);
        }
    }
}
