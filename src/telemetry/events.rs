//! The lines of `metrics.jsonl`. Their format is stable: a change needs an entry in CHANGELOG.md, and keys may be added
//! at the end of an event but never renamed or reordered.

use super::Score;
use super::rank_times::RankTimes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// One line. Epochs count from 0; `step` is the number of completed optimizer steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Event {
    Step(StepEvent),
    Epoch(EpochEvent),
    Checkpoint(CheckpointEvent),
    Restart(RestartEvent),
    Resume(ResumeEvent),
    End(EndEvent),
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
    pub fn now(event: &'a Event) -> Self {
        Self::at(event, SystemTime::now())
    }

    fn at(event: &'a Event, time: SystemTime) -> Self {
        let millis = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        Self { event, time: millis as f64 / 1e3 }
    }
}

/// Written after an optimizer step. Values are over all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepEvent {
    pub step: u64,
    pub epoch: u64,
    /// Mean training loss since the previous step event. JSON has no NaN: a loss that is not finite is `null`.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    pub lr: f64,
    /// NaN, and without a key in the file, if no time has passed by the clock.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub samples_per_s: f64,
    /// Global gradient norm before clipping, if it is computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grad_norm: Option<f64>,
    /// Fraction of the time that the training step waited for data, 0 to 1; NaN as `samples_per_s`.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub data_wait: f64,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub times: Option<RankTimes>,
    /// Fraction of the averaging of gradients that ran during the backward pass, over all ranks, 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "none_if_other")]
    pub overlap: Option<f64>,
}

/// Written after an epoch and its validation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochEvent {
    pub epoch: u64,
    pub train: Metrics,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<Metrics>,
    pub seconds: f64,
    pub step: u64,
    pub lr: f64,
    /// NaN, and without a key in the file, if no time has passed by the clock.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub samples_per_s: f64,
    /// Fraction of the time that training steps waited for data, 0 to 1; NaN as `samples_per_s`.
    #[serde(default = "nan", skip_serializing_if = "is_not_finite", deserialize_with = "nan_if_null")]
    pub data_wait: f64,
    /// `max_steps` ended it before its samples were.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

impl EpochEvent {
    /// Completed epochs after it.
    pub fn completed(&self) -> u64 {
        // A damaged line may have any number.
        self.epoch.saturating_add(u64::from(!self.cut))
    }

    /// How good it is by a metric; `None` if that was not measured.
    pub fn score(&self, metric: &str, prefers_larger: bool) -> Option<Score> {
        Score::new(self.value(metric)?, prefers_larger, self.value("val.loss"))
    }

    /// The value of a metric that is named with its split: `val.loss`.
    pub fn value(&self, metric: &str) -> Option<f64> {
        let (split, name) = metric.split_once('.')?;
        match split {
            "train" => self.train.get(name),
            _ => self.val.as_ref()?.get(name),
        }
    }

    /// Samples and seconds of the epoch, of which [`rate_of`] makes a rate.
    pub fn trained(&self) -> (f64, f64) {
        match self.samples_per_s.is_finite() {
            true => (self.seconds * self.samples_per_s, self.seconds),
            false => (0.0, 0.0),
        }
    }
}

/// Samples per second of all these epochs together.
pub fn rate_over<'a>(epochs: impl Iterator<Item = &'a EpochEvent>) -> Option<f64> {
    let trained = epochs.map(EpochEvent::trained);
    rate_of(trained.fold((0.0, 0.0), |(samples, seconds), of| (samples + of.0, seconds + of.1)))
}

/// Samples per second; `None` of a time that is too short to tell.
pub fn rate_of((samples, seconds): (f64, f64)) -> Option<f64> {
    (seconds >= 0.1).then(|| samples / seconds)
}

/// Written when a checkpoint is complete on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CheckpointEvent {
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// Relative to the run folder.
    pub path: String,
    pub bytes: u64,
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
    pub reason: String,
}

/// Written when the run resumes from a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResumeEvent {
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// Relative to the run folder.
    pub path: String,
    pub world: usize,
    /// Samples per optimizer step, which depends on the number of processes.
    pub global_batch: usize,
    /// Micro-batches per optimizer step.
    pub accumulate: usize,
}

/// Written when the workers end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndEvent {
    pub step: u64,
    /// Completed epochs.
    pub epoch: u64,
    /// `done`, `stopped`, or the failure.
    pub reason: String,
    pub exit_code: u8,
    /// Duration of the run over all its starts.
    pub seconds: f64,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

impl Metrics {
    pub fn new(loss: f64) -> Self {
        Self::default().with("loss", loss)
    }

    /// Adds a value, replacing one of the same name.
    pub fn with(mut self, name: &str, value: f64) -> Self {
        self.values.insert(name.to_owned(), value.into());
        self
    }

    pub fn samples(mut self, n: u64) -> Self {
        self.n = Some(n);
        self
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.iter().find(|(n, _)| *n == name).map(|(_, v)| v)
    }

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
impl EpochEvent {
    /// An epoch of ten steps with this accuracy.
    pub fn sample(epoch: u64, accuracy: f64) -> Self {
        Self {
            epoch,
            train: Metrics::new(0.5),
            val: Some(Metrics::new(0.25).with("accuracy", accuracy)),
            seconds: 2.0,
            step: 10 * (epoch + 1),
            lr: 0.1,
            samples_per_s: 1000.0,
            data_wait: 0.0,
            cut: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn lines_have_the_documented_format() {
        let events = [
            (
                Event::Step(StepEvent {
                    step: 480,
                    epoch: 1,
                    loss: 0.1 + 0.2,
                    lr: 5e-4,
                    samples_per_s: 1234.5,
                    grad_norm: None,
                    data_wait: 0.25,
                    times: None,
                    overlap: None,
                }),
                r#"{"event":"step","step":480,"epoch":1,"loss":0.30000000000000004,"lr":0.0005,"samples_per_s":1234.5,"data_wait":0.25}"#,
            ),
            (
                Event::Step(StepEvent {
                    step: 480,
                    epoch: 1,
                    loss: 0.5,
                    lr: 5e-4,
                    samples_per_s: 1234.5,
                    grad_norm: Some(1.0),
                    data_wait: 0.25,
                    times: Some(RankTimes {
                        data: vec![0.001, 0.002],
                        forward: vec![0.25, 0.5],
                        backward: vec![0.5, 0.75],
                        comm: vec![0.1, 0.0],
                        optimizer: vec![0.01, 0.02],
                        checkpoint: vec![0.0, 0.03],
                        other: vec![0.0, 0.04],
                    }),
                    overlap: Some(0.75),
                }),
                r#"{"event":"step","step":480,"epoch":1,"loss":0.5,"lr":0.0005,"samples_per_s":1234.5,"grad_norm":1.0,"data_wait":0.25,"times":{"data":[0.001,0.002],"forward":[0.25,0.5],"backward":[0.5,0.75],"comm":[0.1,0.0],"optimizer":[0.01,0.02],"checkpoint":[0.0,0.03],"other":[0.0,0.04]},"overlap":0.75}"#,
            ),
            (
                Event::Epoch(EpochEvent {
                    epoch: 0,
                    train: Metrics::new(1.5).with("accuracy", 0.55),
                    val: Some(Metrics::new(1.25).with("accuracy", 0.5).samples(5000)),
                    seconds: 12.5,
                    step: 352,
                    lr: 5e-4,
                    samples_per_s: 3600.0,
                    data_wait: 0.001,
                    cut: false,
                }),
                r#"{"event":"epoch","epoch":0,"train":{"loss":1.5,"accuracy":0.55},"val":{"loss":1.25,"accuracy":0.5,"n":5000},"seconds":12.5,"step":352,"lr":0.0005,"samples_per_s":3600.0,"data_wait":0.001}"#,
            ),
            (
                Event::Checkpoint(CheckpointEvent {
                    step: 480,
                    epoch: 1,
                    path: "checkpoints/step-00000480".into(),
                    bytes: 134,
                    seconds: 0.25,
                    held_up_s: Some(0.02),
                }),
                r#"{"event":"checkpoint","step":480,"epoch":1,"path":"checkpoints/step-00000480","bytes":134,"seconds":0.25,"held_up_s":0.02}"#,
            ),
            (
                Event::Restart(RestartEvent { attempt: 1, reason: "rank 1 was killed".into() }),
                r#"{"event":"restart","attempt":1,"reason":"rank 1 was killed"}"#,
            ),
            (
                Event::Resume(ResumeEvent {
                    step: 480,
                    epoch: 1,
                    path: "c".into(),
                    world: 2,
                    global_batch: 32,
                    accumulate: 4,
                }),
                r#"{"event":"resume","step":480,"epoch":1,"path":"c","world":2,"global_batch":32,"accumulate":4}"#,
            ),
            (
                Event::End(EndEvent {
                    step: 960,
                    epoch: 2,
                    reason: "done".into(),
                    exit_code: 0,
                    seconds: 60.0,
                }),
                r#"{"event":"end","step":960,"epoch":2,"reason":"done","exit_code":0,"seconds":60.0}"#,
            ),
            (
                Event::Divergence(DivergenceEvent {
                    step: 8,
                    epoch: 0,
                    ranks: vec![2],
                    by: Some("majority".into()),
                    tensor: "parameter w".into(),
                    digests: vec!["a".into(), "a".into(), "b".into()],
                    agreed: 4,
                }),
                r#"{"event":"divergence","step":8,"epoch":0,"ranks":[2],"by":"majority","tensor":"parameter w","digests":["a","a","b"],"agreed":4}"#,
            ),
        ];
        for (event, line) in events {
            assert_eq!(serde_json::to_string(&event).unwrap(), line);
            assert_eq!(serde_json::from_str::<Event>(line).unwrap(), event);
        }
    }

    #[test]
    fn a_line_ends_with_its_time() {
        let event = Event::Restart(RestartEvent { attempt: 1, reason: "killed".into() });
        let line = serde_json::to_string(&Stamped::at(
            &event,
            UNIX_EPOCH + Duration::from_millis(1_763_873_456_123),
        ));
        let line = line.unwrap();
        assert_eq!(line, r#"{"event":"restart","attempt":1,"reason":"killed","time":1763873456.123}"#);
        assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
    }

    #[test]
    fn a_non_finite_loss_is_null_and_read_as_nan() {
        let line =
            r#"{"event":"step","step":1,"epoch":0,"loss":null,"lr":0.1,"samples_per_s":1.0,"data_wait":0.0}"#;
        let Event::Step(step) = serde_json::from_str(line).unwrap() else { panic!("a step") };
        assert!(step.loss.is_nan());
        assert_eq!(serde_json::to_string(&Event::Step(step)).unwrap(), line);
    }

    /// As with a clock that stands still; `null` is what development builds wrote then.
    #[test]
    fn rates_that_are_not_finite_have_no_key() {
        let step = StepEvent { samples_per_s: f64::INFINITY, data_wait: f64::NAN, ..StepEvent::default() };
        let epoch = EpochEvent { samples_per_s: f64::NAN, data_wait: f64::NAN, ..EpochEvent::sample(0, 0.5) };
        for event in [Event::Step(step), Event::Epoch(epoch)] {
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains("samples_per_s") && !line.contains("data_wait"), "{line}");
            let nulls = line.replace("\"lr\"", "\"samples_per_s\":null,\"data_wait\":null,\"lr\"");
            for text in [&line, &nulls] {
                let read = serde_json::from_str::<Event>(text).unwrap();
                assert_eq!(serde_json::to_string(&read).unwrap(), line);
            }
        }
    }
}
