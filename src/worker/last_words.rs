//! What a rank says when it fails.

use crate::comm::{CommError, ProcessGroup};
use crate::error::{Error, ExitCode, Result};
use crate::launch::{Failure, FlightRecord, Handoff, StopFlag};
use crate::train::Ended;
use std::cell::{Cell, OnceCell};
use std::path::PathBuf;
use std::sync::Arc;

/// What a rank leaves behind when it fails: a note for the supervisor, and its last collectives if it was theirs. Written as soon as
/// the failure is known, for the run is being taken down meanwhile.
pub struct LastWords<'a> {
    pub handoff: &'a Handoff,
    pub stop: &'a StopFlag,
    /// The group that the ranks formed.
    pub group: OnceCell<Arc<dyn ProcessGroup>>,
    written: Cell<bool>,
    /// Whether the log folder is this run's.
    pub writes: bool,
    /// Where the last collectives are.
    record: Cell<Option<PathBuf>>,
}

impl<'a> LastWords<'a> {
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

    /// Of several errors the first counts: the others follow from it.
    pub fn write(&self, error: &Error) {
        if self.written.replace(true) {
            return;
        }
        // From here on, no stop signal and no take-down ends this process before it has said what it has to say.
        self.stop.settle();
        tracing::error!("{}", error.message);
        if !self.writes {
            return;
        }
        let log_dir = &self.handoff.log_dir;
        let mut note = Failure::of(self.handoff.place.rank, error);
        if let Some(group) = self.group.get() {
            note = note.at(&**group);
            if let Some(error) = error.caused_by::<CommError>()
                && FlightRecord::of(&**group, error).write(log_dir).is_ok()
            {
                self.record.set(Some(FlightRecord::path(log_dir, note.rank)));
            }
        }
        if let Err(e) = note.write(log_dir) {
            // On a full disk nobody else would say it.
            say!("rank {}: {} (and its note can't be written: {e})", note.rank, error.message);
        }
    }

    /// The process's exit code, or its error with the rank in it.
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
        // The others must not wait for a rank that panicked.
        self.group.get().iter().for_each(|group| group.abort(&error.message));
        if let Some(path) = self.record.take() {
            error.hint.get_or_insert(format!("the last collectives are in {}", path.display()));
        }
        Err(Error { message: format!("rank {}: {}", self.handoff.place.rank, error.message), ..error })
    }
}
