//! The folder of a run whose ranks a launcher such as torchrun, srun or mpirun has started. They
//! have no supervisor: rank 0 locks the folder itself and records how the run has ended.

use super::RankParts;
use super::handoff::{Handoff, JobHandoff};
use super::profile::profile_of;
use super::spec_changes::continues_the_run;
use base::error::{IoContext, Result};
use launch::{ExitCode, clear_notes, logs};
use record::history::{FolderLock, log_of_others, writes_to_no_others};
use record::{MetricsBaseline, Profile, RunId};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Whether a rank may write its log.
pub(super) struct LogAccess {
    /// Rank 0's error about a file that no run has written, which it reports when the other ranks
    /// can receive it.
    pub others: Result<()>,
    pub writes: bool,
}

impl LogAccess {
    pub fn new(handoff: &Handoff, run: &RunId) -> Self {
        let (out_dir, log_dir) = (&handoff.job.out_dir, &handoff.log_dir);
        let held_by_another_run = FolderLock::is_held_by_another_run(out_dir, run);
        let others = match handoff.place.rank == 0 && !held_by_another_run {
            true => writes_to_no_others(out_dir, log_dir),
            false => Ok(()),
        };
        let is_log_of_others = !matches!(log_of_others(out_dir, log_dir), Ok(None));
        let writes = !held_by_another_run && !is_log_of_others && others.is_ok();
        Self { others, writes }
    }
}

/// Begins this rank's log, in the log folder if it `writes` there.
pub(super) fn open_log(handoff: &Handoff, writes: bool) -> Result<Option<Profile>> {
    if !writes {
        logs::init_without(handoff.job.log)?;
        return Ok(None);
    }
    std::fs::create_dir_all(&handoff.log_dir).doing("create", &handoff.log_dir)?;
    drop(logs::open_with_header(handoff, handoff.job.log.format)?);
    clear_notes(&handoff.log_dir, handoff.place.rank);
    let profile = profile_of(handoff);
    logs::init_worker(handoff, handoff.job.log, profile.clone())?;
    logs::record_panics(handoff);
    Ok(profile)
}

/// The folder of a run whose rank 0 is this process.
pub(super) struct RunFolder<'a> {
    pub parts: &'a RankParts<'a>,
    pub job: &'a JobHandoff,
    pub run: &'a RunId,
    /// [`LogAccess::others`], until it is reported.
    pub others: Result<()>,
    pub end: EndOfRun,
    pub lock: Option<FolderLock>,
}

impl RunFolder<'_> {
    /// Takes the lock. The other ranks receive the error.
    pub fn lock(&mut self) -> Result<()> {
        std::mem::replace(&mut self.others, Ok(()))?;
        let (out_dir, patience) = (&self.job.out_dir, *self.parts.group.distributed.init_timeout);
        // A stop request ends this process as any before training, and the other ranks with it.
        let lock = FolderLock::take(out_dir, self.run, patience, &|| false)?;
        continues_the_run(self.parts.spec(), self.job)?;
        self.lock = lock;
        let _ = self.end.baseline.set(MetricsBaseline::read(out_dir));
        Ok(())
    }
}

/// Records how the run has ended.
#[derive(Clone)]
pub(super) struct EndOfRun {
    out_dir: PathBuf,
    /// Set when the folder is this run's.
    baseline: Arc<OnceLock<MetricsBaseline>>,
}

impl EndOfRun {
    pub fn new(out_dir: PathBuf) -> Self {
        Self { out_dir, baseline: Arc::default() }
    }

    pub fn record(&self, ended: &Result<ExitCode>) {
        if let Some(baseline) = self.baseline.get() {
            baseline.conclude_or_warn(
                &self.out_dir,
                ExitCode::from_result(ended) as u8,
                ended.as_ref().err(),
            );
        }
    }
}
