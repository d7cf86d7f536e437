//! What observers receive about a run before its first event.

use serde::Serialize;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// A start of a run, for [`EventObserver::start`](super::EventObserver::start).
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ObservedRun {
    /// `name` of the spec.
    pub name: String,
    /// The run's folder.
    pub folder: PathBuf,
    /// All values of the spec by their dotted keys, as `ddp-run plan` shows them: `train.loss`, `observer.0.name`.
    pub spec: Map<String, Value>,
    /// The values that `--set` and environment variables changed, as `KEY=VALUE`.
    pub set: Vec<String>,
    /// This start, as in `run.json`: `started`, `argv`, `world`, `git`, `host`, `run` and others.
    pub run: Value,
    /// Optimizer steps before this start: those after it in an earlier start's files are repeated.
    pub step: u64,
    /// Epochs whose lines in `metrics.jsonl` stay.
    pub epochs: u64,
    /// Whether it continues from a checkpoint, of this folder or another one.
    pub resumes: bool,
    /// `restart` events so far, before this start's own.
    pub restarts: u64,
    /// Until when the run waits for its observers.
    #[serde(skip)]
    pub(super) waits: Arc<OnceLock<Instant>>,
}

impl ObservedRun {
    /// Once the run is over: the time at which it stops waiting for its observers, and the process exits. It may be asked
    /// from anywhere, at any time.
    pub(crate) fn waits_until(&self) -> Option<Instant> {
        self.waits.get().copied()
    }

    /// A path of an observer's key: relative ones are in the run's folder.
    pub fn path(&self, path: &Path) -> PathBuf {
        self.folder.join(path)
    }

    /// Tells all clones that the run is over.
    pub(super) fn end(&self, until: Instant) {
        let _ = self.waits.set(until);
    }
}
