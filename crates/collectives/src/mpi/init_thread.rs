//! The thread that starts MPI and ends it: MPI requires the same thread for both, and both may block forever, so it is
//! a dedicated one.

use super::library::{Library, MpiError};
use mpi::Threading;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// Time limit of the orderly end, which is quick once all ranks have agreed on it.
const END: Duration = Duration::from_secs(10);

pub(super) struct InitThread {
    order: Sender<()>,
    ended: Receiver<()>,
}

/// Why MPI could not be started.
pub(super) enum StartError {
    /// No response within the time.
    Timeout,
    Failed(String),
}

impl InitThread {
    /// Starts MPI, in at most `time_limit`. The thread that does so lives until the process or the group ends.
    pub(super) fn start(time_limit: Duration) -> Result<(Self, Library), StartError> {
        let ((order, orders), (end, ended)) = (channel(), channel());
        let (say, started) = channel();
        let keep = move || {
            let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Serialized) else {
                let _ = say.send(Err("MPI was already initialized in this process".to_owned()));
                return;
            };
            let opened = match threading {
                Threading::Serialized | Threading::Multiple => Library::open().map_err(|MpiError(e)| e),
                Threading::Single | Threading::Funneled => {
                    Err("this MPI does not support MPI_THREAD_SERIALIZED, which ddp-run requires".to_owned())
                }
            };
            let _ = say.send(opened);
            // Without the order, the group has failed or was never formed: MPI_Finalize would wait for ranks that are gone.
            match orders.recv() {
                Ok(()) => drop(universe),
                Err(_) => std::mem::forget(universe),
            }
            let _ = end.send(());
        };
        let spawned = thread::Builder::new().name("mpi".to_owned()).spawn(keep);
        spawned.map_err(|e| StartError::Failed(format!("cannot start a thread: {e}")))?;
        match started.recv_timeout(time_limit) {
            Ok(Ok(library)) => Ok((Self { order, ended }, library)),
            Ok(Err(why)) => Err(StartError::Failed(why)),
            Err(RecvTimeoutError::Timeout) => Err(StartError::Timeout),
            Err(RecvTimeoutError::Disconnected) => {
                Err(StartError::Failed("the thread that starts MPI panicked".to_owned()))
            }
        }
    }

    /// Calls MPI_Finalize, after which nothing can call MPI. False if it did not return.
    pub(super) fn finalize(self, _: Library) -> bool {
        self.order.send(()).is_ok() && self.ended.recv_timeout(END).is_ok()
    }
}
