//! This machine's part of a run: what to start, and how such a run ends.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use super::elastic::{self, Nodes};
use super::handoff::JobHandoff;
use super::state::Policy;
use super::stop::StopFlag;
use super::verdict::End;
use crate::error::{Error, ExitCode, Result};

/// Where rank 0's standard output and error go; the other ranks' always go to their logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FirstRankOutput {
    /// To the supervisor's own, so that progress is live on the terminal.
    #[default]
    Inherit,
    /// To its log, as for the others.
    Log,
}

/// `nproc` workers on this machine, and how they belong to a run of one or several nodes.
#[derive(Clone, Debug)]
pub struct LocalLaunch {
    /// At least 1.
    pub nproc: usize,
    /// The worker's program and arguments: this binary and `worker` by default.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub job: JobHandoff,
    /// Created if need be.
    pub log_dir: PathBuf,
    /// Usable cores / `nproc` when not given.
    pub threads_per_worker: Option<usize>,
    /// The address that rank 0 is reachable at; loopback unless the spec says otherwise.
    pub bind: IpAddr,
    /// In the logs' headers; random when empty.
    pub run_id: String,
    pub first_rank_output: FirstRankOutput,
    pub policy: Policy,
    pub nodes: Nodes,
    /// Has heard the stop signals so far.
    pub stop: StopFlag,
    /// The step of the newest checkpoint that workers started again would go on from, as a cheap look at the run's folder
    /// tells; progress refills the restarts.
    pub newest_checkpoint: fn(&JobHandoff) -> Option<u64>,
}

/// How a run ended that did not fail.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `Done` or `Stopped`.
    pub code: ExitCode,
    /// The signal that asked for the stop.
    pub stopped_by: Option<i32>,
    /// Each rank's end; `None` for one that was not started before the stop.
    pub ends: Vec<Option<End>>,
}

impl LocalLaunch {
    /// A launch of this binary's `worker` subcommand with the usual settings; logs go to `out_dir/logs`.
    pub fn new(nproc: usize, job: JobHandoff) -> Result<Self> {
        let program = std::env::current_exe().map_err(|e| {
            Error::internal(format!("cannot find this program's own file to start workers from: {e}"))
        })?;
        Ok(Self {
            nproc,
            program,
            args: vec!["worker".into()],
            log_dir: job.out_dir.join("logs"),
            job,
            threads_per_worker: None,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            run_id: String::new(),
            first_rank_output: FirstRankOutput::default(),
            policy: Policy::default(),
            nodes: Nodes::default(),
            stop: StopFlag::new(),
            newest_checkpoint: |_| None,
        })
    }

    /// Starts the workers, again where the run is worth it, and returns when all of them are gone and the run is over on all
    /// nodes.
    ///
    /// Call it from the main thread: on Linux the workers die with the calling thread. It takes over the
    /// stop signals, SIGTSTP and SIGCHLD; after it has returned, the process ignores the stop signals.
    ///
    /// Errors: a worker failed (with its report and the run's exit code), or could not be started.
    pub fn run(self) -> Result<Outcome> {
        if self.nproc == 0 {
            return Err(Error::usage("a run needs at least one process"));
        }
        elastic::run(self)
    }
}
