//! Configuration of the workers on this machine.

use std::ffi::OsString;
use std::path::PathBuf;

use super::console::Console;
use super::handoff::not_encoded;
use super::logs::LogFormat;
use super::state::Policy;
use super::stop::StopFlag;
use super::torch_variables::TorchVariables;
use base::error::{Error, Result};
use serde::Serialize;

/// `nproc` workers on this machine.
#[derive(Clone, Debug)]
pub struct LocalLaunch {
    /// At least 1.
    pub nproc: usize,
    /// The worker's program and arguments; by default this binary with the subcommand `worker`.
    pub program: PathBuf,
    /// The program's arguments.
    pub args: Vec<OsString>,
    /// What each worker gets besides its arguments.
    pub input: WorkerInput,
    /// Goes into each worker's handoff.
    pub job: serde_json::Value,
    /// Created if it does not exist.
    pub log_dir: PathBuf,
    /// Of the header of each log.
    pub log_format: LogFormat,
    /// Usable cores / `nproc` if not given.
    pub threads_per_worker: Option<usize>,
    /// Time limits of the supervisor.
    pub policy: Policy,
    /// Which output appears on the terminal.
    pub console: Console,
    /// Contains any stop signal that has arrived so far.
    pub stop: StopFlag,
}

/// How a worker learns its place in the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerInput {
    /// From the [`Handoff`](super::Handoff) on its standard input, which stays open as the control pipe.
    Handoff,
    /// From its environment; its standard input is empty, and signals stop it.
    Environment(TorchVariables),
}

impl LocalLaunch {
    /// Runs this binary's `worker` subcommand with the default settings.
    ///
    /// # Errors
    /// `job` has a path that is not UTF-8, or this binary's path is unknown.
    pub fn new(nproc: usize, job: &impl Serialize, log_dir: PathBuf) -> Result<Self> {
        let job = serde_json::to_value(job).map_err(|e| not_encoded(&e))?;
        Ok(Self {
            nproc,
            program: own_program()?,
            args: vec!["worker".into()],
            input: WorkerInput::Handoff,
            job,
            log_dir,
            log_format: LogFormat::default(),
            threads_per_worker: None,
            policy: Policy::default(),
            console: Console::default(),
            stop: StopFlag::new(),
        })
    }
}

/// The path of this program, which the workers run too.
pub fn own_program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| no_program(&e))
}

/// On Linux the path is that of a link in `/proc`.
fn no_program(e: &std::io::Error) -> Error {
    let what = format!("cannot determine this program's path, from which it starts workers: {e}");
    Error::unavailable(what).hint("on Linux it comes from /proc, which must be mounted")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    #[test]
    fn a_machine_without_proc_lacks_something_and_is_no_bug() {
        let error = no_program(&std::io::ErrorKind::NotFound.into());
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(error.hint.is_some_and(|hint| hint.contains("/proc")));
    }
}
