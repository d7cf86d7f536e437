//! What a failing rank reports.

use super::handoff::Handoff;
use base::error::{Error, Result};
use collectives::{CommError, CommErrorKind, ProcessGroup};
use launch::logs::ALREADY_PRINTED;
use launch::{ExitCode, Failure, FlightRecord, StopFlag, write_error_file_of};
use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;
use train::training::TrainingEnd;

/// The report of a failing rank: a note for the supervisor and, if a collective failed, its last collectives. Written
/// as soon as the failure is known, because the run is being taken down meanwhile.
pub struct FailureReport<'a> {
    pub handoff: &'a Handoff,
    pub stop: &'a StopFlag,
    /// The ranks' process group.
    pub group: OnceCell<Arc<dyn ProcessGroup>>,
    error: Cell<FirstError>,
    /// Whether this run may write to the log folder.
    pub writes: bool,
    /// The path of the collectives' record.
    record: Cell<Option<PathBuf>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstError {
    None,
    /// The run was asked to stop before training, and a peer has stopped.
    Stopped,
    Failed,
}

impl<'a> FailureReport<'a> {
    pub fn new(handoff: &'a Handoff, stop: &'a StopFlag) -> Self {
        Self {
            handoff,
            stop,
            group: OnceCell::new(),
            error: Cell::new(FirstError::None),
            writes: true,
            record: Cell::new(None),
        }
    }

    /// Writes the first error only: later ones follow from it. Returns whether the run has failed, so that the other ranks are to be
    /// told; else it was asked to stop before training, and only a peer is gone.
    pub fn write(&self, error: &Error) -> bool {
        match self.error.get() {
            FirstError::Failed => return true,
            FirstError::Stopped if is_lost(error) => return false,
            // After a peer that is gone, this rank may fail by itself.
            FirstError::None | FirstError::Stopped => {}
        }
        // A signal does not reach all ranks at once, and the first ones end while the others wait for them.
        let stopped = self.stop.requested_before_training() && is_lost(error);
        self.error.set(if stopped { FirstError::Stopped } else { FirstError::Failed });
        // From here on neither a stop signal nor a take-down ends this process before the report is complete.
        self.stop.settle();
        if stopped {
            tracing::info!("stopped on request before training began; {}", error.message);
            return false;
        }
        tracing::error!(target: ALREADY_PRINTED, "{}", error.message);
        let mut note = Failure::new(self.handoff.place.rank, error);
        if let Some(group) = self.group.get() {
            note = note.at(&**group);
        }
        write_error_file_of(&note);
        if !self.writes {
            return true;
        }
        let log_dir = &self.handoff.log_dir;
        if let Some(group) = self.group.get()
            && let Some(error) = error.caused_by::<CommError>()
            && FlightRecord::new(&**group, error).write(log_dir).is_ok()
        {
            self.record.set(Some(FlightRecord::path(log_dir, note.rank)));
        }
        if let Err(e) = note.write(log_dir) {
            // Otherwise the error would be lost on a full disk.
            status!("rank {}: {} (the failure note can't be written: {e})", note.rank, error.message);
        }
        true
    }

    /// The process's exit code, or its error with the rank.
    pub fn end(self, done: Result<TrainingEnd>) -> Result<ExitCode> {
        let mut error = match done {
            Ok(ended) => {
                self.stop.settle();
                let stopped = ended == TrainingEnd::Stopped;
                return Ok(if stopped { ExitCode::Stopped } else { ExitCode::Done });
            }
            Err(error) => error,
        };
        if !self.write(&error) {
            return Ok(ExitCode::Stopped);
        }
        // Other ranks must not wait for a rank that panicked.
        self.group.get().iter().for_each(|group| group.abort(&error.message));
        if let Some(path) = self.record.take() {
            error.hint.get_or_insert(format!("the last collectives are in {}", path.display()));
        }
        Err(Error { message: format!("rank {}: {}", self.handoff.place.rank, error.message), ..error })
    }
}

/// Whether a peer is gone without a word.
fn is_lost(error: &Error) -> bool {
    error.caused_by::<CommError>().is_some_and(|e| e.kind == CommErrorKind::PeerLost)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::JobHandoff;
    use base::error::ErrorKind;
    use collectives::rendezvous::Secret;
    use launch::{Endpoint, RankPosition};
    use signal_hook::consts::SIGTERM;

    /// Rank 0 of 2 with this log folder.
    fn handoff(log_dir: &std::path::Path) -> Handoff {
        let (place, secret) = (RankPosition::on_one_node(0, 2), Secret::generate().unwrap());
        let mut handoff = Handoff::new(place, Endpoint::Solo, secret, JobHandoff::default());
        handoff.log_dir = log_dir.to_owned();
        handoff
    }

    /// How a rank ends that has lost a peer after `before`.
    fn ends(before: impl FnOnce(&StopFlag), kind: CommErrorKind) -> (Result<ExitCode>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let handoff = handoff(folder.path());
        let stop = StopFlag::new();
        before(&stop);
        let failed = Err(CommError::new(kind, Some(1), "rank 1 disconnected").into());
        let end = FailureReport::new(&handoff, &stop).end(failed);
        (end, folder.path().read_dir().unwrap().next().is_some())
    }

    #[test]
    fn a_rank_asked_to_stop_before_training_stops_when_a_peer_has_left() {
        let asked = |stop: &StopFlag| {
            stop.connected();
            stop.arrived(SIGTERM);
        };
        let training = |stop: &StopFlag| {
            asked(stop);
            assert!(stop.requested_at_step());
        };
        let (end, note) = ends(asked, CommErrorKind::PeerLost);
        assert_eq!((end.unwrap(), note), (ExitCode::Stopped, false));
        // Unless it was not asked, trains, or is told by another rank that the run has failed.
        let fails = |before: &dyn Fn(&StopFlag), kind| {
            let (end, note) = ends(before, kind);
            assert_eq!((end.unwrap_err().kind, note), (ErrorKind::Collective, true));
        };
        fails(&|stop| stop.connected(), CommErrorKind::PeerLost);
        fails(&training, CommErrorKind::PeerLost);
        fails(&asked, CommErrorKind::Aborted);
        // What fails afterwards is another matter.
        let (folder, stop) = (tempfile::tempdir().unwrap(), StopFlag::new());
        asked(&stop);
        let handoff = handoff(folder.path());
        let report = FailureReport::new(&handoff, &stop);
        let lost = Error::from(CommError::new(CommErrorKind::PeerLost, Some(1), "rank 1 disconnected"));
        assert_eq!([report.write(&lost), report.write(&lost)], [false; 2]);
        assert_eq!(report.end(Err(Error::io("disk full"))).unwrap_err().kind, ErrorKind::Io);
    }
}
