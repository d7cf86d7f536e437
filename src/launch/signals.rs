//! The supervisor's signals as readable events, and its one way to wait.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::os;
use super::stop::{StopFlag, heard};
use crate::error::{Error, Result};

/// Signals as readable events.
pub struct Signals(SignalDelivery<UnixStream, SignalOnly>);

/// What a signal means to a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// One of [`STOP_SIGNALS`](super::stop::STOP_SIGNALS).
    Stop(i32),
    /// Ctrl-Z.
    Pause,
}

impl Signals {
    /// From here on the stop signals are these events. One that `before` has heard is the first of them.
    pub fn new(before: &StopFlag) -> Result<Self> {
        let pause = Some(SIGTSTP).filter(|signal| !os::is_ignored(*signal));
        let all = heard().chain(pause).chain([SIGCHLD]).collect::<Vec<_>>();
        let signals = Self::of(&all).map_err(cannot)?;
        before.settle();
        if let Some(early) = before.signal() {
            signal_hook::low_level::raise(early).map_err(cannot)?;
        }
        Ok(signals)
    }

    /// Only that workers end: this process has nothing to save, and what a stop signal does to it, it does to them.
    pub fn of_ends() -> Result<Self> {
        Self::of(&[SIGCHLD]).map_err(cannot)
    }

    fn of(all: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        os::unblock(all)?;
        Ok(Self(delivery))
    }

    /// Readable when one has come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }

    /// Those that have come.
    pub fn pending(&mut self) -> Vec<Signal> {
        let meaning = |signal| match signal {
            SIGCHLD => None,
            SIGTSTP => Some(Signal::Pause),
            stop => Some(Signal::Stop(stop)),
        };
        self.0.pending().filter_map(meaning).collect()
    }

    /// While no workers run: returns at a signal, when `other` is readable, or at `until`.
    pub fn wait(&mut self, other: Option<BorrowedFd<'_>>, until: Option<Instant>) -> Result<Option<Signal>> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        wait_for(&mut fds, until)?;
        drop(fds);
        Ok(self.pending().into_iter().next())
    }

    /// Does what Ctrl-Z does to a process that has no workers; returns when it is continued.
    pub fn pause(&self) {
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

fn cannot(e: io::Error) -> Error {
    Error::internal(format!("cannot watch for signals: {e}"))
}

/// `poll(2)` until `until`; an interruption is as good as an event.
pub fn wait_for(fds: &mut [PollFd<'_>], until: Option<Instant>) -> Result<()> {
    let timeout = until.map(|at| {
        // One nanosecond past it, for `split_off` keeps what falls on the instant itself.
        let left = at.saturating_duration_since(Instant::now()) + Duration::from_nanos(1);
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(Error::internal(format!("cannot wait for the workers: {e}"))),
    }
}
