//! The failure note that a failing worker writes for its supervisor: `logs/failure-rank-N.json`.
//!
//! Its message, hint and exit code say more than the last lines of the log. The note is optional: a worker that a signal
//! kills before it fails writes none, and the supervisor then shows the log.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::cause::FailureCause;
use super::error_file;
use super::flight::FlightRecord;
use crate::ExitCode;
use base::error::Error;
use base::files::AtomicFile;
use collectives::{CommError, ProcessGroup, StepPhase};
use std::time::Duration;

/// The note that a failing rank leaves for its supervisor, in `failure-rank-N.json` in the folder of the logs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The rank that failed.
    pub rank: usize,
    /// Distinguishes this process's note from one of an earlier attempt.
    pub pid: u32,
    /// The exit code that the worker is about to end with.
    pub code: i32,
    /// Why it failed.
    #[serde(rename = "kind")]
    pub cause: FailureCause,
    /// Time of the failure on the monotonic clock (CLOCK_MONOTONIC), which all processes of a host share.
    pub(crate) monotonic_ns: u64,
    /// The error, as the user reads it.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The rank that the error of a failed collective names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<usize>,
    /// The rank's step and phase; unknown before the rendezvous.
    #[serde(flatten)]
    pub place: Option<StepPhase>,
    /// The last collective of its process group, in progress or complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) last_collective: Option<String>,
    /// From the record of a Python program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) traceback: Option<String>,
}

/// What a supervisor knows about a worker's end besides its exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// From the worker's failure note.
    pub noted: Option<FailureCause>,
    /// Time of the failure according to the note; without a note, the time when the supervisor saw the exit.
    pub at: Duration,
}

impl Evidence {
    /// The rank failed by itself, before it ended.
    pub(super) fn own(&self) -> Option<FailureCause> {
        self.noted.filter(|noted| !noted.is_consequence() && *noted != FailureCause::Panicked)
    }

    /// It failed because of another rank.
    pub(super) fn lost_others(&self) -> bool {
        self.noted.is_some_and(FailureCause::is_consequence)
    }

    pub(super) fn new(note: Option<&Failure>) -> Self {
        let noted = note.map(|note| match note.cause {
            // A panic on a thread beside the training leaves a note without a place, and the rank may go on.
            FailureCause::Bug if note.place.is_none() => FailureCause::Panicked,
            cause => cause,
        });
        let of_end = note.filter(|_| noted != Some(FailureCause::Panicked));
        Self { noted, at: of_end.map_or_else(monotonic, |n| Duration::from_nanos(n.monotonic_ns)) }
    }
}

pub(super) fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Upper limit of a note's size, because others may be able to write to the folder.
pub(super) const MAX_BYTES: u64 = 256 << 10;

impl Failure {
    /// The failure note of this process for `error`.
    pub fn new(rank: usize, error: &Error) -> Self {
        Self {
            rank,
            pid: std::process::id(),
            code: ExitCode::from(error.kind) as i32,
            cause: FailureCause::from_error(error),
            monotonic_ns: u64::try_from(monotonic().as_nanos()).unwrap_or(u64::MAX),
            message: error.message.clone(),
            hint: error.hint.clone(),
            peer: error.caused_by::<CommError>().and_then(|e| e.peer),
            place: None,
            last_collective: None,
            traceback: None,
        }
    }

    /// Adds the rank's step, phase and last collective from `group`.
    pub fn at(self, group: &dyn ProcessGroup) -> Self {
        let place = group.place();
        let lost = self.cause == FailureCause::DeviceMissing && place.step > 0;
        Self {
            cause: if lost { FailureCause::DeviceLost } else { self.cause },
            place: Some(place),
            last_collective: group.history().pop().map(|last| last.call),
            ..self
        }
    }

    /// `step 3, phase sync, last collective all_reduce #21 (mean of 1232 f32)`; `None` if unknown.
    pub(crate) fn whereabouts(&self) -> Option<String> {
        let mut text = self.place?.to_string();
        if let Some(last) = &self.last_collective {
            text.push_str(", last collective ");
            text.push_str(last);
        }
        Some(text)
    }

    /// Writes the note atomically.
    pub fn write(&self, log_dir: &Path) -> io::Result<()> {
        write_atomically(&Self::path(log_dir, self.rank), self)
    }

    /// The note of process `pid` as `rank`; `None` if there is none or it can't be read.
    pub fn read(log_dir: &Path, rank: usize, pid: u32) -> Option<Self> {
        let mut bytes = Vec::new();
        base::files::open(&Self::path(log_dir, rank)).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
        let note: Self = serde_json::from_slice(&bytes).ok()?;
        (note.rank == rank && note.pid == pid).then_some(note)
    }

    fn path(log_dir: &Path, rank: usize) -> PathBuf {
        log_dir.join(format!("failure-rank-{rank}.json"))
    }
}

/// Writes `value` to `path` as JSON, atomically.
pub(super) fn write_atomically(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut draft = AtomicFile::under(scratch(path), path)?;
    serde_json::to_writer_pretty(&mut draft, value)?;
    draft.put()
}

/// The temporary name while `path` is being written.
fn scratch(path: &Path) -> PathBuf {
    path.with_extension("json.tmp")
}

/// Removes the unfinished files of a rank that was killed.
pub(super) fn sweep(log_dir: &Path, rank: usize) {
    for path in [Failure::path(log_dir, rank), FlightRecord::path(log_dir, rank)] {
        let _ = fs::remove_file(scratch(&path));
    }
}

/// Removes the files of an earlier attempt of this rank: its note, its flight record, its error file, and unfinished ones.
pub fn clear(log_dir: &Path, rank: usize) {
    let of_rank = [Failure::path, FlightRecord::path, error_file::path].map(|path| path(log_dir, rank));
    for path in of_rank {
        let _ = fs::remove_file(path);
    }
    sweep(log_dir, rank);
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::CommErrorKind;

    #[test]
    fn only_a_rank_that_failed_by_itself_has_a_cause_of_its_own() {
        let own =
            |error: &Error, place| Evidence::new(Some(&Failure { place, ..Failure::new(1, error) })).own();
        let place = Some(StepPhase { step: 3, phase: collectives::Phase::Sync });
        assert_eq!(own(&Error::data("no file"), None), Some(FailureCause::Spec));
        let lost = Error::from(CommError::new(CommErrorKind::PeerLost, Some(0), "rank 0 is gone"));
        assert_eq!(own(&lost, place), None);
        let bug = Error::internal("panicked");
        assert_eq!((own(&bug, place), own(&bug, None)), (Some(FailureCause::Bug), None));
        // A panic that the rank outlived says nothing about its end, much later.
        let outlived = Evidence::new(Some(&Failure { monotonic_ns: 1, ..Failure::new(1, &bug) }));
        assert!(outlived.at > Duration::from_nanos(1), "{outlived:?}");
    }

    #[test]
    fn a_note_is_read_back_only_for_the_process_that_wrote_it() {
        let folder = tempfile::tempdir().expect("tempdir");
        let note = Failure::new(3, &Error::data("no file").hint("fetch it"));
        assert_eq!(Failure::read(folder.path(), 3, note.pid), None);
        note.write(folder.path()).expect("write");
        assert_eq!(Failure::read(folder.path(), 3, note.pid), Some(note.clone()));
        assert_eq!(Failure::read(folder.path(), 3, note.pid + 1), None);
        assert_eq!(Failure::read(folder.path(), 2, note.pid), None);
        fs::write(scratch(&Failure::path(folder.path(), 3)), "{").expect("write");
        clear(folder.path(), 3);
        assert_eq!(fs::read_dir(folder.path()).expect("list").count(), 0);
        assert_eq!(Failure::read(folder.path(), 3, note.pid), None);
    }
}
