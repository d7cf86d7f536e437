//! Starting the processes of a run on this machine, watching them, and bringing them all to their end.
//!
//! The supervisor ([`LocalLaunch`]) starts one worker process a rank from its own binary, hands each its
//! [`Handoff`] over a pipe, forwards stop signals, and names the culprit when one dies. What it decides is in
//! [`state`], a state machine without I/O; [`LocalLaunch`] carries the decisions out. The worker side is
//! [`Handoff::receive`], [`StopFlag`], [`logs`], [`Failure`] and [`FlightRecord`]. No worker outlives its supervisor: the kernel kills
//! it (Linux), and the worker ends itself when its end of the control pipe closes (everywhere).

pub mod cores;
pub mod descriptors;
mod elastic;
mod failure;
mod flight;
mod handoff;
mod key;
mod local;
pub mod logs;
mod os;
mod rdzv;
mod reach;
mod report;
mod signals;
pub mod state;
mod stop;
mod supervisor;
mod timers;
mod verdict;
mod worker;

pub use cores::Nproc;
pub use elastic::Nodes;
pub use failure::{Failure, clear as clear_notes};
pub use flight::FlightRecord;
pub use handoff::{Endpoint, Handoff, JobHandoff, Place, Received};
pub use key::KeySource;
pub(crate) use key::KeyText;
pub use local::{FirstRankOutput, LocalLaunch, Outcome};
pub(crate) use os::adopt_listener;
pub use rdzv::{NodeRange, RdzvEndpoint};
pub(crate) use reach::{Reach, own_address, reach};
pub use state::Policy;
pub use stop::{OnSecondSignal, OwnEnd, StopFlag};
pub use verdict::{End, Verdict, WorkerStatus};
pub(crate) use worker::{Output, Process};

use crate::error::Result;

/// The program's first deed: a signal that comes before its handler kills the process without a word.
pub fn begin() -> Result<StopFlag> {
    os::fail_at_the_file_size_limit();
    StopFlag::install(OnSecondSignal::Exit)
}
