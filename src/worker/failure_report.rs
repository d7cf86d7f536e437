//! What a failing rank reports.

use crate::comm::{CommError, ProcessGroup};
use crate::error::{Error, ExitCode, Result};
use crate::launch::logs::SAID;
use crate::launch::{Failure, FlightRecord, Handoff, StopFlag, write_error_file_of};
use crate::train::Ended;
use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;

/// The report of a failing rank: a note for the supervisor and, if a collective failed, its last collectives. Written
/// as soon as the failure is known, because the run is being taken down meanwhile.
pub struct FailureReport<'a> {
    pub handoff: &'a Handoff,
    pub stop: &'a StopFlag,
    /// The ranks' process group.
    pub group: OnceCell<Arc<dyn ProcessGroup>>,
    written: Cell<bool>,
    /// Whether this run may write to the log folder.
    pub writes: bool,
    /// The path of the collectives' record.
    record: Cell<Option<PathBuf>>,
}

impl<'a> FailureReport<'a> {
    pub fn new(handoff: &'a Handoff, stop: &'a StopFlag) -> Self {
        Self {
            handoff,
            stop,
            group: OnceCell::new(),
            written: Cell::new(false),
            writes: true,
            record: Cell::new(None),
        }
    }

    /// Writes the first error only: later ones follow from it.
    pub fn write(&self, error: &Error) {
        if self.written.replace(true) {
            return;
        }
        // From here on neither a stop signal nor a take-down ends this process before the report is complete.
        self.stop.settle();
        tracing::error!(target: SAID, "{}", error.message);
        let mut note = Failure::of(self.handoff.place.rank, error);
        if let Some(group) = self.group.get() {
            note = note.at(&**group);
        }
        write_error_file_of(&note);
        if !self.writes {
            return;
        }
        let log_dir = &self.handoff.log_dir;
        if let Some(group) = self.group.get()
            && let Some(error) = error.caused_by::<CommError>()
            && FlightRecord::of(&**group, error).write(log_dir).is_ok()
        {
            self.record.set(Some(FlightRecord::path(log_dir, note.rank)));
        }
        if let Err(e) = note.write(log_dir) {
            // Otherwise the error would be lost on a full disk.
            say!("rank {}: {} (the failure note can't be written: {e})", note.rank, error.message);
        }
    }

    /// The process's exit code, or its error with the rank.
    pub fn end(self, done: Result<Ended>) -> Result<ExitCode> {
        let mut error = match done {
            Ok(ended) => {
                self.stop.settle();
                let stopped = ended == Ended::Stopped;
                return Ok(if stopped { ExitCode::Stopped } else { ExitCode::Done });
            }
            Err(error) => error,
        };
        self.write(&error);
        // Other ranks must not wait for a rank that panicked.
        self.group.get().iter().for_each(|group| group.abort(&error.message));
        if let Some(path) = self.record.take() {
            error.hint.get_or_insert(format!("the last collectives are in {}", path.display()));
        }
        Err(Error { message: format!("rank {}: {}", self.handoff.place.rank, error.message), ..error })
    }
}
