//! What a rank is told to do: the job in its [handoff](launch::Handoff), from the supervisor or,
//! under a launcher of ranks, from the process itself.

use base::error::{Error, Result};
use launch::StopFlag;
use launch::logs::LogOptions;
use record::{ProfileSteps, ProgressMode, Provenance};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The handoff of a rank.
pub type Handoff = launch::Handoff<JobHandoff>;

/// The result of [`received`].
pub type Received = launch::Received<JobHandoff>;

/// The job itself, the same for every worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobHandoff {
    /// The name of the spec as typed, for messages.
    pub spec_name: String,
    /// The resolved spec (`job.toml`).
    pub job_toml: String,
    /// The values that the spec as typed and the command line set, to be shown.
    pub set: Vec<String>,
    /// The run's folder.
    pub out_dir: PathBuf,
    /// `auto`, `never` or a path.
    pub resume: String,
    /// `--accept-changes`.
    pub accept_changes: bool,
    /// Provenance of this start, for `run.json`; set by the process that starts rank 0.
    pub provenance: Option<Provenance>,
    /// `--log-format`, `-v` and `-q`.
    pub log: LogOptions,
    /// `--progress`.
    pub progress: ProgressMode,
    /// Folder of the logs, if it is not `logs/` in `out_dir`.
    pub log_dir: Option<PathBuf>,
    /// `--rdzv-id`.
    pub rdzv_id: Option<String>,
    /// `--profile`.
    pub profile: Option<ProfileSteps>,
    /// `ddp-run eval`: what the ranks do instead of training.
    pub evaluation: Option<EvaluationHandoff>,
}

/// The evaluation of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvaluationHandoff {
    /// Only rank 0 reads it.
    pub checkpoint: PathBuf,
    /// The folder of the run's checkpoints, where rank 0 finds another one if a running training has
    /// removed that one.
    pub among: Option<PathBuf>,
    /// It is the best of them, else the newest.
    pub best: bool,
    /// `train`, `val` or `test`.
    pub split: String,
    /// Evaluate the averaged weights, if there are some.
    pub averaged: bool,
    /// Count predictions by class.
    pub per_class: bool,
    /// The file to which rank 0 writes the result.
    pub result: PathBuf,
}

impl JobHandoff {
    /// Folder of the logs.
    pub fn logs(&self) -> PathBuf {
        self.log_dir.clone().unwrap_or_else(|| self.out_dir.join("logs"))
    }
}

/// [`launch::Handoff::take`], in `ddp-run worker`.
pub fn received(stop: &StopFlag) -> Result<Received> {
    let by_hand = || {
        Error::usage("`ddp-run worker` is started by the supervisor, not by hand")
            .hint("`ddp-run SPEC.toml` starts a run")
    };
    let orphaned = |rank| status!("rank {rank}: the supervisor exited; exiting");
    let mut received = launch::Handoff::<JobHandoff>::take(stop, by_hand, orphaned)?;
    let Handoff { place, job, .. } = &mut received.handoff;
    if let Some(start) = &mut job.provenance {
        start.takes_place_with(place.world_size);
    }
    Ok(received)
}
