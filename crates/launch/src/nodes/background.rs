//! Runs a slow operation on its own thread, so that signals are handled meanwhile.

use crate::{Signals, wait_for};
use base::error::{Error, Result};
use rustix::event::{PollFd, PollFlags};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

const CLEANUP_TIME: Duration = Duration::from_millis(100);

pub(super) struct Background<T> {
    /// Readable when the answer is ready.
    done: UnixStream,
    answer: Receiver<Result<T>>,
}

impl<T: Send + 'static> Background<T> {
    /// `name` is the name of the thread.
    pub fn start(name: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let cannot = |e| Error::internal(format!("cannot start the thread `{name}`: {e}"));
        let (done, theirs) = UnixStream::pair().map_err(cannot)?;
        let (sender, answer) = channel();
        let run = move || {
            let _ = sender.send(work());
            // Closing this end makes the other one readable: the answer is ready.
            drop(theirs);
        };
        std::thread::Builder::new().name(name.into()).spawn(run).map_err(cannot)?;
        Ok(Self { done, answer })
    }

    /// The answer; `None` if a stop signal comes first. In that case the thread is abandoned, after a short time in
    /// which it can finish writing or removing files.
    pub fn wait(self, signals: &mut Signals) -> Result<Option<T>> {
        loop {
            if signals.wait(Some(self.done.as_fd()), None)? {
                let mut done = [PollFd::from_borrowed_fd(self.done.as_fd(), PollFlags::IN)];
                wait_for(&mut done, Some(Instant::now() + CLEANUP_TIME))?;
                return Ok(None);
            }
            match self.answer.try_recv() {
                Ok(answer) => return answer.map(Some),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(Error::internal("a supervisor's thread panicked"));
                }
            }
        }
    }
}
