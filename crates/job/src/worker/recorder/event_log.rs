//! Where the events of a run go: `metrics.jsonl`, TensorBoard's files and observers.

use crate::worker::messages::warn;
use base::error::{Error, Result};
use launch::logs::ALREADY_PRINTED;
use record::{Event, MetricsWriter, Observers, Stamped, StartOfRun, TensorBoardWriter};
use std::path::Path;

/// The writers of a run's events.
pub(super) struct EventLog {
    pub metrics: MetricsWriter,
    /// `None` after an error.
    tensorboard: Option<TensorBoardWriter>,
    pub observers: Observers,
    /// The first error that its caller could not return.
    failed: Option<Error>,
    /// A file that only pages and TensorBoard read has failed, and the warning about it is printed.
    has_warned: bool,
}

impl EventLog {
    pub fn new(metrics: MetricsWriter, observers: Observers) -> Self {
        Self { metrics, tensorboard: None, observers, failed: None, has_warned: false }
    }

    /// Writes an event of the start, which TensorBoard does not show.
    pub fn begin(&mut self, event: &Event) -> Result<()> {
        let event = Stamped::now(event);
        self.metrics.write(&event)?;
        self.observers.pass(&event);
        Ok(())
    }

    pub fn open_tensorboard(&mut self, out_dir: &Path, step: u64, start: &StartOfRun) {
        let tensorboard = TensorBoardWriter::create(&out_dir.join("tensorboard"), step, start);
        self.tensorboard = self.tolerate(tensorboard);
    }

    pub fn write(&mut self, event: &Event) {
        let line = Stamped::now(event);
        let done = self.metrics.write(&line);
        self.keep_error(done);
        let written = self.tensorboard.as_mut().map_or(Ok(()), |tensorboard| tensorboard.write(event));
        if self.tolerate(written).is_none() {
            self.tensorboard = None;
        }
        self.observers.pass(&line);
    }

    /// Keeps the first error; the training loop receives it at the next save.
    pub fn keep_error<T>(&mut self, done: Result<T>) -> Option<T> {
        match done {
            Ok(value) => Some(value),
            Err(e) => {
                tracing::error!(target: ALREADY_PRINTED, "{}", e.message);
                self.failed.get_or_insert(e);
                None
            }
        }
    }

    /// The error that is kept, once.
    pub fn take_error(&mut self) -> Option<Error> {
        self.failed.take()
    }

    /// Warns once of the failure of a file that only pages and TensorBoard read, which is no reason
    /// to end a run.
    pub fn tolerate<T>(&mut self, done: Result<T>) -> Option<T> {
        done.inspect_err(|e| {
            if !std::mem::replace(&mut self.has_warned, true) {
                warn(&format!("{}; the run goes on, and its pages lack this", e.message));
            }
        })
        .ok()
    }
}
