//! A run as its report needs it: the events of `metrics.jsonl` with their times, and its other files.

use crate::evaluations::{self, EvaluationRecord};
use crate::events::{EpochEvent, Event, StepEvent};
use crate::lines::for_each_line;
use crate::prediction::{self, Prediction};
use crate::provenance::{self, Provenance};
use crate::rank_times::RankTimes;
use base::error::Result;
use serde::Deserialize;
use std::path::Path;

/// A line of `metrics.jsonl`.
#[derive(Clone)]
pub(super) struct Record {
    /// A step's event is without its `times`, which are in [`Anatomy`].
    pub event: Event,
    /// Seconds since 1970; `None` in files of early versions.
    pub time: Option<f64>,
}

/// Where the time of steps goes: the `times` of step events. Means are kept of each window (the steps up to an event), and
/// sums of each rank, so that a long run does not need the memory for all.
#[derive(Debug, Default)]
pub(super) struct Anatomy {
    /// The parts of a step (`data`, `forward` …); empty without windows.
    pub phases: Vec<&'static str>,
    pub windows: Vec<Window>,
    /// By rank and phase, over those windows that have as many ranks as the last one.
    pub sums: Vec<Vec<f64>>,
    /// How many windows `sums` has.
    pub summed: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    pub step: u64,
    /// Seconds per step of each phase, the mean over ranks.
    pub means: Vec<f64>,
    /// The part of the communication that runs beside the backward pass, 0 to 1.
    pub overlap: Option<f64>,
}

/// The other fields of a line.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Extras {
    time: Option<f64>,
}

/// A run's folder.
#[derive(Default)]
pub(super) struct RunRecords {
    pub name: String,
    pub records: Vec<Record>,
    pub anatomy: Anatomy,
    /// Oldest first.
    pub evaluations: Vec<EvaluationRecord>,
    /// The starts of the run, oldest first; empty without a `run.json`.
    pub starts: Vec<Provenance>,
    /// `job.toml`.
    pub spec: Option<String>,
    /// `prediction.json`, if there is one that can be read.
    pub prediction: Option<Prediction>,
    /// Why it can't be read.
    pub unread_prediction: Option<String>,
}

impl RunRecords {
    pub fn read(folder: &Path) -> Result<Self> {
        let mut run = Self::without_records(folder)?;
        for_each_line(&folder.join("metrics.jsonl"), |line| {
            if let Some(event) = line.event {
                run.add(event, line.bytes);
            }
            Ok(())
        })?;
        Ok(run)
    }

    /// The folder without its `metrics.jsonl`.
    pub fn without_records(folder: &Path) -> Result<Self> {
        let file = folder.join("run.json");
        let mut starts = Vec::new();
        if file.exists() {
            let read = provenance::read(&file)?;
            starts.extend(read.earlier.into_iter().chain([read.latest]));
        }
        let folder_name = folder.canonicalize().ok().and_then(|it| it.file_name().map(ToOwned::to_owned));
        let folder_name = folder_name.map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned());
        let (prediction, unread_prediction) = match prediction::of_run(folder) {
            Ok(prediction) => (prediction, None),
            Err(why) => (None, Some(why.message)),
        };
        Ok(Self {
            name: starts.last().map_or(folder_name, |start| start.name.clone()),
            evaluations: evaluations::read(folder),
            starts,
            spec: base::files::read_text(&folder.join("job.toml")).ok(),
            prediction,
            unread_prediction,
            ..Self::default()
        })
    }

    /// Adds the event of a line.
    pub fn add(&mut self, mut event: Event, line: &[u8]) {
        let extras: Extras = serde_json::from_slice(line).unwrap_or_default();
        if let Event::Step(StepEvent { step, times, overlap, .. }) = &mut event
            && let Some(times) = times.take()
        {
            self.anatomy.add(*step, &times, *overlap);
        }
        self.records.push(Record { event, time: extras.time });
    }

    /// The latest start.
    pub fn start(&self) -> Option<&Provenance> {
        self.starts.last()
    }

    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.records.iter().map(|record| &record.event)
    }

    pub fn steps(&self) -> impl DoubleEndedIterator<Item = &StepEvent> {
        self.events().filter_map(|e| if let Event::Step(it) = e { Some(it) } else { None })
    }

    pub fn epochs(&self) -> impl DoubleEndedIterator<Item = &EpochEvent> {
        self.events().filter_map(|e| if let Event::Epoch(it) = e { Some(it) } else { None })
    }

    /// Names of the metrics of epochs, in the order of their first appearance.
    pub fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for epoch in self.epochs() {
            for (name, _) in epoch.train.iter().chain(epoch.val.iter().flat_map(|val| val.iter())) {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}

impl Anatomy {
    /// Adds a window. One whose parts are not of the same ranks, of another version, is left out.
    pub fn add(&mut self, step: u64, times: &RankTimes, overlap: Option<f64>) {
        let (parts, world) = (times.parts(), times.ranks());
        if world == 0 || parts.iter().any(|(_, of)| of.len() != world) {
            return;
        }
        self.phases = parts.map(|(name, _)| name).into();
        let means = parts.map(|(_, of)| of.iter().sum::<f64>() / world as f64).into();
        self.windows.push(Window { step, means, overlap });
        if self.sums.len() != world {
            (self.sums, self.summed) = (vec![vec![0.0; parts.len()]; world], 0);
        }
        for (phase, (_, of)) in parts.iter().enumerate() {
            self.sums.iter_mut().zip(*of).for_each(|(sum, value)| sum[phase] += value);
        }
        self.summed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(data: &[f64], comm: &[f64]) -> RankTimes {
        RankTimes { data: data.to_vec(), comm: comm.to_vec(), ..crate::samples::no_times(data.len()) }
    }

    #[test]
    fn reads_times_and_what_another_version_writes() {
        let dir = tempfile::tempdir().unwrap();
        let step =
            r#"{"event":"step","step":1,"epoch":0,"loss":1.0,"lr":0.1,"samples_per_s":1.0,"data_wait":0.0"#;
        let own = serde_json::to_string(&times(&[0.125, 0.375], &[0.5, 1.5])).unwrap();
        let lines = [
            format!("{step},\"times\":{own},\"overlap\":0.5,\"time\":7.5}}"),
            format!("{step},\"times\":\"later\",\"overlap\":[1],\"time\":8.5}}"),
            format!("{step}}}"),
        ];
        std::fs::write(dir.path().join("metrics.jsonl"), lines.join("\n") + "\n").unwrap();
        let run = RunRecords::read(dir.path()).unwrap();
        let clock: Vec<Option<f64>> = run.records.iter().map(|r| r.time).collect();
        assert_eq!(clock, [Some(7.5), Some(8.5), None]);
        assert_eq!(run.anatomy.phases[..4], ["data", "forward", "backward", "comm"]);
        let means = vec![0.25, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        assert_eq!(run.anatomy.windows, [Window { step: 1, means, overlap: Some(0.5) }]);
    }

    #[test]
    fn a_prediction_that_can_not_be_read_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("metrics.jsonl"), "").unwrap();
        let read = || RunRecords::read(dir.path()).unwrap();
        assert!(read().prediction.is_none() && read().unread_prediction.is_none());
        std::fs::write(dir.path().join("prediction.json"), "{").unwrap();
        let why = read().unread_prediction.unwrap();
        assert!(why.contains("prediction.json is not a prediction: EOF"), "{why}");
        let sample = crate::prediction::sample();
        base::files::replace_json(&prediction::path(dir.path()), &sample).unwrap();
        assert!(read().unread_prediction.is_none() && read().prediction == Some(sample));
    }

    #[test]
    fn sums_are_those_of_the_last_number_of_ranks() {
        let mut anatomy = Anatomy::default();
        for (data, comm) in [(&[8.0][..], &[1.0][..]), (&[1.0, 2.0], &[5.0, 6.0]), (&[3.0, 4.0], &[7.0, 8.0])]
        {
            anatomy.add(1, &times(data, comm), None);
        }
        anatomy.add(1, &RankTimes::default(), None);
        anatomy.add(1, &times(&[1.0, 2.0], &[5.0]), None);
        assert_eq!((anatomy.windows.len(), anatomy.summed), (3, 2));
        let sums: Vec<(f64, f64)> = anatomy.sums.iter().map(|of| (of[0], of[3])).collect();
        assert_eq!(sums, [(4.0, 12.0), (6.0, 14.0)]);
    }
}
