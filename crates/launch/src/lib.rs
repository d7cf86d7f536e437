//! Starts, watches and ends the processes of a run on this machine: one generation of workers.
//!
//! The supervisor (`supervisor`) starts one worker process per rank, from its own binary with a
//! [`Handoff`] over a pipe or from any program with torchrun's variables ([`WorkerInput`]). It
//! forwards stop signals, and names the culprit when a worker fails. Its decisions are in `state`,
//! a state machine without I/O; a `ProcessSet` carries them out. Whether another generation follows
//! is decided by the supervisor's `Controller`. The worker's side is [`Handoff::take`],
//! [`StopFlag`], [`logs`], [`Failure`] and [`FlightRecord`]. No worker outlives its supervisor: the
//! kernel kills it (Linux), and the worker exits when its control pipe is closed (all systems).

#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
extern crate base;

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod cause;
pub mod clusters;
mod config;
mod console;
pub mod cores;
pub mod descriptors;
mod error_file;
mod exit_code;
mod failure;
mod flight;
mod generation;
mod handoff;
mod inbox;
mod local;
pub mod logs;
pub mod memory;
pub mod nodes;
mod os;
mod process_set;
mod report;
mod signals;
mod state;
mod stop;
mod supervisor;
mod timers;
mod torch_variables;
mod verdict;
mod worker;

pub use base::process_stat::ProcessStat;
pub use cause::FailureCause;
pub use config::LaunchConfig;
pub(crate) use console::{Console, LocalRanks, Streams};
pub use cores::Nproc;
pub use error_file::{write_error_file, write_error_file_of};
pub use exit_code::ExitCode;
pub use failure::{Failure, clear as clear_notes};
pub use flight::FlightRecord;
pub(crate) use generation::NodeGeneration;
pub use generation::{Controller, Recall};
pub use handoff::{Endpoint, Handoff, RankPosition, Received};
pub use inbox::Inbox;
pub(crate) use inbox::MAX_LINE;
pub use local::own_program;
pub use local::{LocalLaunch, WorkerInput};
pub use os::{bind_to_supervisor, page_faults};
pub use process_set::ProcessSet;
pub(crate) use report::{Attribution, NodeEnd, NodeFailure};
pub use report::{describe, grouped};
pub use signals::{Signal, Signals, wait_for};
pub use state::Policy;
pub use stop::{OnSecondSignal, SelfExit, StopFlag};
pub(crate) use supervisor::{Ended, LocalWorkers};
pub(crate) use timers::Timers;
pub use torch_variables::TorchVariables;
pub use verdict::{Verdict, WorkerStatus};
pub use worker::{Output, Process};

use base::error::Result;

/// Call it first: a signal that arrives before its handler is installed kills the process without a message.
pub fn begin() -> Result<StopFlag> {
    os::fail_at_the_file_size_limit();
    StopFlag::install(OnSecondSignal::Exit)
}
