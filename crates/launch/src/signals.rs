//! The supervisor's signals as readable events, and the function that it waits with.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::os;
use super::stop::{StopFlag, handled_signals};
use base::error::{Error, Result};

/// Signals as readable events.
pub struct Signals(SignalDelivery<UnixStream, SignalOnly>);

/// The meaning of a signal for a supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// One of `STOP_SIGNALS`.
    Stop(i32),
    /// Ctrl-Z.
    Pause,
}

impl Signals {
    /// Turns the stop signals into events from now on. A signal that `before` has already received is the first event.
    pub fn new(before: &StopFlag) -> Result<Self> {
        let pause = Some(SIGTSTP).filter(|signal| !os::is_ignored(*signal));
        let all = handled_signals().chain(pause).chain([SIGCHLD]).collect::<Vec<_>>();
        let signals = Self::receive(&all).map_err(cannot)?;
        before.settle();
        if let Some(early) = before.signal() {
            signal_hook::low_level::raise(early).map_err(cannot)?;
        }
        Ok(signals)
    }

    /// Only SIGCHLD, for a process that has nothing to save: a stop signal kills it and, with it, its children.
    pub fn of_ends() -> Result<Self> {
        Self::receive(&[SIGCHLD]).map_err(cannot)
    }

    fn receive(all: &[i32]) -> io::Result<Self> {
        let (read, write) = UnixStream::pair()?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, all)?;
        os::unblock(all)?;
        Ok(Self(delivery))
    }

    /// Readable when a signal has arrived.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }

    /// The signals that have arrived.
    pub fn pending(&mut self) -> Vec<Signal> {
        let meaning = |signal| match signal {
            SIGCHLD => None,
            SIGTSTP => Some(Signal::Pause),
            stop => Some(Signal::Stop(stop)),
        };
        self.0.pending().filter_map(meaning).collect()
    }

    /// For use while no workers run: returns whether a stop signal has arrived; `false` when `other` is readable, at
    /// `until`, and after Ctrl-Z, which stops this process until it is continued.
    pub fn wait(&mut self, other: Option<BorrowedFd<'_>>, until: Option<Instant>) -> Result<bool> {
        let mut fds = vec![PollFd::from_borrowed_fd(self.fd(), PollFlags::IN)];
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        wait_for(&mut fds, until)?;
        drop(fds);
        match self.pending().into_iter().next() {
            Some(Signal::Stop(_)) => return Ok(true),
            Some(Signal::Pause) => self.pause(),
            None => {}
        }
        Ok(false)
    }

    /// Ctrl-Z: stops this process; returns when it is continued.
    pub fn pause(&self) {
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
    }
}

fn cannot(e: io::Error) -> Error {
    Error::internal(format!("cannot watch for signals: {e}"))
}

/// `poll(2)` until `until`; also returns when interrupted.
pub fn wait_for(fds: &mut [PollFd<'_>], until: Option<Instant>) -> Result<()> {
    let timeout = until.map(|at| {
        let left = at.saturating_duration_since(Instant::now());
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
    });
    match poll(fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(Error::internal(format!("cannot wait for the workers: {e}"))),
    }
}
