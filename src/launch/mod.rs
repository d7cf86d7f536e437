//! Starting the processes of a run on this machine, watching them, and bringing them all to their end: one generation of workers.
//!
//! The supervisor (`supervisor`) starts one worker process a rank from its own binary, hands each its
//! [`Handoff`] over a pipe, forwards stop signals, and names the culprit when one dies. What it decides is in
//! [`state`], a state machine without I/O; a `ProcessSet` carries the decisions out. Whether another generation follows is decided
//! above, by the supervisor's `Controller`. The worker side is
//! [`Handoff::receive`], [`StopFlag`], [`logs`], [`Failure`] and [`FlightRecord`]. No worker outlives its supervisor: the kernel kills
//! it (Linux), and the worker ends itself when its end of the control pipe closes (everywhere).

pub mod cores;
pub mod descriptors;
mod failure;
mod flight;
mod generation;
mod handoff;
mod inbox;
mod local;
pub mod logs;
mod os;
mod process_set;
mod report;
mod signals;
pub mod state;
mod stop;
mod supervisor;
mod timers;
mod verdict;
mod worker;

pub use cores::Nproc;
pub use failure::{Failure, clear as clear_notes};
pub use flight::FlightRecord;
pub(crate) use generation::{Controller, Part, Recall};
pub use handoff::{Endpoint, Handoff, JobHandoff, Place, Received};
pub(crate) use inbox::{Inbox, MAX_LINE};
pub(crate) use local::own_program;
pub use local::{FirstRankOutput, LocalLaunch};
pub(crate) use process_set::ProcessSet;
pub(crate) use report::{Cause, Failed};
pub(crate) use signals::{Signal, Signals, wait_for};
pub use state::Policy;
pub use stop::{OnSecondSignal, OwnEnd, StopFlag};
pub(crate) use supervisor::{Ended, Fleet};
pub(crate) use timers::Timers;
pub use verdict::{End, Verdict, WorkerStatus};
pub(crate) use worker::{Output, Process};

use crate::error::Result;

/// The program's first deed: a signal that comes before its handler kills the process without a word.
pub fn begin() -> Result<StopFlag> {
    os::fail_at_the_file_size_limit();
    StopFlag::install(OnSecondSignal::Exit)
}
