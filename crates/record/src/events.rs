//! The lines of `metrics.jsonl`. Their format is stable: a change needs an entry in CHANGELOG.md, and keys may be added
//! at the end of an event but never renamed or reordered.

use super::rank_times::RankTimes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// One line. Epochs count from 0; `step` is the number of completed optimizer steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    /// An optimizer step that is logged.
    Step(StepEvent),
    /// An epoch that ended.
    Epoch(EpochEvent),
    /// A checkpoint that was saved.
    Checkpoint(CheckpointEvent),
    /// A new start of the workers.
    Restart(RestartEvent),
    /// A start from a checkpoint.
    Resume(ResumeEvent),
    /// The end of a start.
    End(EndEvent),
    /// Ranks whose states differ.
    Divergence(DivergenceEvent),
}

impl Event {
    /// Completed optimizer steps, if the event has them.
    pub fn step(&self) -> Option<u64> {
        match self {
            Event::Step(e) => Some(e.step),
            Event::Epoch(e) => Some(e.step),
            Event::Checkpoint(e) => Some(e.step),
            Event::Restart(_) => None,
            Event::Resume(e) => Some(e.step),
            Event::End(e) => Some(e.step),
            Event::Divergence(e) => Some(e.step),
        }
    }
}

/// An event with the time at which it was written, as in a line of the file.
#[derive(Serialize)]
pub struct Stamped<'a> {
    #[serde(flatten)]
    event: &'a Event,
    /// Seconds since 1970, to the millisecond.
    time: f64,
}

impl<'a> Stamped<'a> {
    /// At the system clock's time.
    pub fn now(event: &'a Event) -> Self {
        Self::at(event, SystemTime::now())
    }

    pub(crate) fn at(event: &'a Event, time: SystemTime) -> Self {
        let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Self { event, time: millis as f64 / 1e3 }
    }
}

/// Written after an optimizer step. Values are over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepEvent {
    /// Completed optimizer steps.
    pub step: u64,
    /// From 0.
    pub epoch: u64,
    /// Mean training loss since the previous step event. JSON has no NaN: a loss that is not finite is `null`.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Learning rate of the step.
    pub lr: f64,
    /// NaN, and without a key in the file, if no time has passed by the clock.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub samples_per_s: f64,
    /// The same in tokens, of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub tokens_per_s: Option<f64>,
    /// Floating-point operations per second of the model, of a language model of ddp-run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub flops_per_s: Option<f64>,
    /// The same as a fraction of what all ranks' devices can do, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub mfu: Option<f64>,
    /// Global gradient norm before clipping, if it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Fraction of the time that the training step waited for data, 0 to 1; NaN as `samples_per_s`.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub data_wait: f64,
    /// By rank; `None` if they were not exchanged.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub times: Option<RankTimes>,
    /// Fraction of the averaging of gradients that ran during the backward pass, over all ranks, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub overlap: Option<f64>,
}

/// Written after an epoch and its validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochEvent {
    /// From 0.
    pub epoch: u64,
    /// Means over the epoch's training samples.
    pub train: Metrics,
    /// Of the evaluation after the epoch, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<Metrics>,
    /// Duration of the epoch and its validation.
    pub seconds: f64,
    /// Completed optimizer steps.
    pub step: u64,
    /// Learning rate of the last step.
    pub lr: f64,
    /// NaN, and without a key in the file, if no time has passed by the clock.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub samples_per_s: f64,
    /// The same in tokens, of a language model.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub tokens_per_s: Option<f64>,
    /// Floating-point operations per second of the model, of a language model of ddp-run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub flops_per_s: Option<f64>,
    /// The same as a fraction of what all ranks' devices can do, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub mfu: Option<f64>,
    /// Fraction of the time that training steps waited for data, 0 to 1; NaN as `samples_per_s`.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub data_wait: f64,
    /// `max_steps` ended it before its samples were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Written when a checkpoint is complete on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointEvent {
    /// Completed optimizer steps.
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// Relative to the run folder.
    pub path: String,
    /// Total size of all files.
    pub bytes: u64,
    /// How long it took to write.
    pub seconds: f64,
    /// Seconds for which the training step waited for the save.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_up_s: Option<f64>,
}

/// Written when the workers are restarted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartEvent {
    /// Starts since the last progress: 2 for the first restart, 1 for a new start of a run that had saved nothing.
    pub attempt: u64,
    /// Why the previous start ended.
    pub reason: String,
}

/// Written when the run resumes from a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResumeEvent {
    /// Completed optimizer steps at the checkpoint.
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// Relative to the run folder.
    pub path: String,
    /// Number of ranks from now on.
    pub world: usize,
    /// Samples per optimizer step, which depends on the number of processes.
    pub global_batch: usize,
    /// Micro-batches per optimizer step.
    pub accumulate: usize,
}

/// Written when the workers end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndEvent {
    /// Completed optimizer steps.
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// `done`, `stopped`, or the failure.
    pub reason: String,
    /// As the program ends with; docs/failures.md lists them.
    pub exit_code: u8,
    /// Duration of the run over all its starts.
    pub seconds: f64,
}

/// How a run ended, according to the exit code of its end event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// It is complete.
    Done,
    /// It stopped on request and can be resumed.
    Stopped,
    /// Any other exit code.
    Failed,
}

impl RunEnd {
    /// Only two of the program's exit codes are not failures of a run. `launch::ExitCode` has all
    /// of them.
    pub fn from_exit_code(code: u64) -> Self {
        match code {
            0 => Self::Done,
            75 => Self::Stopped,
            _ => Self::Failed,
        }
    }
}

impl EndEvent {
    /// How the run ended.
    pub fn outcome(&self) -> RunEnd {
        RunEnd::from_exit_code(self.exit_code.into())
    }
}

/// Written when the ranks have different states: silent data corruption; and again when the repeated steps have shown on which rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergenceEvent {
    /// The optimizer step after which the states were compared.
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// The ranks whose state is wrong; empty if that is not known.
    pub ranks: Vec<usize>,
    /// The evidence: `majority`, or `repetition` of the steps from a checkpoint; `null` if there is none.
    pub by: Option<String>,
    /// The first tensor that differs.
    pub tensor: String,
    /// Digests of the whole state, in rank order.
    pub digests: Vec<String>,
    /// The last step after which all ranks agreed.
    pub agreed: u64,
}

impl DivergenceEvent {
    /// `silent data corruption on rank 2`
    pub fn words(&self) -> String {
        let named: Vec<String> = self.ranks.iter().map(ToString::to_string).collect();
        match &named[..] {
            [] => "silent data corruption".to_owned(),
            [rank] => format!("silent data corruption on rank {rank}"),
            ranks => format!("silent data corruption on ranks {}", ranks.join(", ")),
        }
    }
}

/// Named values in order: `loss` first, then the task's metrics, then `n`, the number of samples, if known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Numbers; `null` is NaN.
    #[serde(flatten)]
    values: serde_json::Map<String, Value>,
    /// Number of samples that the values are means of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

impl Metrics {
    /// Metrics of which only the loss is known.
    pub fn new(loss: f64) -> Self {
        Self::default().with("loss", loss)
    }

    /// Adds a value, replacing one of the same name.
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    /// With the number of samples.
    pub fn samples(mut self, n: u64) -> Self {
        self.n = Some(n);
        self
    }

    /// The value with this name, NaN if it is `null`.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

    /// Names and values in order, without `n`.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(n, v)| (n.as_str(), v.as_f64().unwrap_or(f64::NAN)))
    }
}

fn nan() -> f64 {
    f64::NAN
}

fn is_not_finite(value: &f64) -> bool {
    !value.is_finite()
}

/// Reads NaN from `null`: JSON has no NaN, and serde_json writes `null` for values that are not finite.
pub fn nan_if_null<'de, D: Deserializer<'de>>(json: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or(f64::NAN))
}

/// Reads `None` from a value that is not a `T`, so that the rest of a line from another version can be read.
fn none_if_other<'de, D: Deserializer<'de>, T: DeserializeOwned>(json: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(json)?).ok())
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
