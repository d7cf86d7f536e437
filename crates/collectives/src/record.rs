//! What a rank reports about itself when a collective fails: its step and phase, and its last calls.

use super::{DType, ProcessGroup};
use base::named;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

named! {
    /// What a rank is doing, as reported to other ranks.
    #[derive(Default)]
    pub enum Phase {
        /// Before the first step: building the model, sharing its state.
        #[default]
        Setup = "setup",
        /// Preparing or reading data.
        Data = "data",
        /// The forward pass.
        Forward = "forward",
        /// The backward pass.
        Backward = "backward",
        /// Waiting for the all-reduce of the gradients.
        Sync = "sync",
        /// The optimizer's update.
        Update = "update",
        /// An evaluation.
        Evaluate = "evaluate",
        /// After an evaluation of a language model: rank 0 generates texts, and the others wait.
        Generate = "generate",
        /// Writing a checkpoint.
        Save = "save",
        /// After the last step.
        Finish = "finish",
    }
}

/// A rank's step (optimizer steps done so far, over the whole run) and phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepPhase {
    /// Optimizer steps done so far.
    pub step: u64,
    /// What the rank does.
    pub phase: Phase,
}

impl std::fmt::Display for StepPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}, phase {}", self.step, self.phase.name())
    }
}

/// A call made by this rank.
#[derive(Clone, Debug, Serialize)]
pub struct CallRecord {
    /// `all_reduce #12 (sum of 1024 f32)`
    pub call: String,
    /// `all_reduce`, `broadcast`, …
    pub operation: &'static str,
    /// Sequence number, from 1: of group calls, or for send and recv of each pair and direction.
    pub sequence: u64,
    /// The type of the elements.
    pub dtype: DType,
    /// Elements in the buffer; for gathers and scatters, in one rank's block.
    pub count: u64,
    /// The algorithm: `shared-memory`, `ring`, …
    pub algorithm: &'static str,
    /// Where the rank was when it made the call.
    pub place: StepPhase,
    /// When; seconds since 1970 in JSON.
    #[serde(serialize_with = "unix_seconds")]
    pub started: SystemTime,
    /// Seconds in JSON. None while the call runs, and for the call that failed.
    #[serde(rename = "took_seconds", serialize_with = "seconds")]
    pub took: Option<Duration>,
}

/// A group's record of this rank, for reports of failures: its place, and its last calls. Peers that wait for this rank ask for the
/// place.
pub trait FlightRecorder: Send + Sync {
    /// Records this rank's step and phase. Costs a few nanoseconds.
    fn note(&self, place: StepPhase);
    /// The place last recorded.
    fn place(&self) -> StepPhase;
    /// The last calls (64 at most), oldest first; empty for engines that keep no record of them.
    fn history(&self) -> Vec<CallRecord>;
}

/// The methods of [`FlightRecorder`]; without one, nothing is recorded.
impl<'a> dyn ProcessGroup + 'a {
    /// See [`FlightRecorder::note`].
    pub fn note(&self, place: StepPhase) {
        if let Some(recorder) = self.flight_recorder() {
            recorder.note(place);
        }
    }

    /// See [`FlightRecorder::place`].
    pub fn place(&self) -> StepPhase {
        self.flight_recorder().map(FlightRecorder::place).unwrap_or_default()
    }

    /// See [`FlightRecorder::history`].
    pub fn history(&self) -> Vec<CallRecord> {
        self.flight_recorder().map(FlightRecorder::history).unwrap_or_default()
    }
}

fn unix_seconds<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serializer.serialize_f64(since.as_secs_f64())
}

fn seconds<S: serde::Serializer>(took: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    took.map(|t| t.as_secs_f64()).serialize(serializer)
}
