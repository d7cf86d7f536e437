//! A run as its report needs it: the events of `metrics.jsonl` with their times, and its other files.

use crate::error::Result;
use crate::telemetry::events::{EpochEvent, Event, StepEvent};
use crate::telemetry::lines::for_each_line;
use crate::telemetry::provenance::{self, Provenance};
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

/// A line of `metrics.jsonl`.
pub(super) struct Record {
    pub event: Event,
    /// Seconds since 1970; `None` in files of early versions.
    pub time: Option<f64>,
}

/// Where the time of steps goes: optional fields of step events. Means are kept of each window (the steps up to an event), and
/// sums of each rank, so that a long run does not need the memory for all.
#[derive(Debug, Default)]
pub(super) struct Anatomy {
    /// The parts of a step (`data`, `forward` …), in the order of the first window.
    pub phases: Vec<String>,
    pub windows: Vec<Window>,
    /// By rank and phase, over those windows that have as many ranks as the last one.
    pub sums: Vec<Vec<f64>>,
    /// How many windows `sums` has.
    pub summed: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct Window {
    pub step: u64,
    /// Seconds per step of each phase, the mean over ranks.
    pub means: Vec<f64>,
    /// The part of the communication that runs beside the backward pass, 0 to 1.
    pub overlap: Option<f64>,
}

/// What a line has besides its event. `times` is read leniently: a line of another version has a report, too.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Extras {
    time: Option<f64>,
    times: Option<Value>,
    overlap: Option<Value>,
}

/// A run's folder.
pub(super) struct Run {
    pub name: String,
    pub records: Vec<Record>,
    pub anatomy: Anatomy,
    /// The starts of the run, oldest first; empty without a `run.json`.
    pub starts: Vec<Provenance>,
    /// `job.toml`.
    pub spec: Option<String>,
}

impl Run {
    pub fn read(folder: &Path) -> Result<Self> {
        let file = folder.join("run.json");
        let mut starts = Vec::new();
        if file.exists() {
            let read = provenance::read(&file)?;
            starts.extend(read.earlier.into_iter().chain([read.latest]));
        }
        let folder_name = folder.canonicalize().ok().and_then(|it| it.file_name().map(ToOwned::to_owned));
        let folder_name = folder_name.map_or_else(|| "run".to_owned(), |n| n.to_string_lossy().into_owned());
        let (records, anatomy) = read(&folder.join("metrics.jsonl"))?;
        Ok(Self {
            name: starts.last().map_or(folder_name, |start| start.name.clone()),
            records,
            anatomy,
            starts,
            spec: std::fs::read_to_string(folder.join("job.toml")).ok(),
        })
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

fn read(path: &Path) -> Result<(Vec<Record>, Anatomy)> {
    let (mut records, mut anatomy) = (Vec::new(), Anatomy::default());
    for_each_line(path, |line| {
        if let Some(event) = line.event {
            let extras: Extras = serde_json::from_slice(line.bytes).unwrap_or_default();
            if let (Event::Step(it), Some(times)) = (&event, &extras.times) {
                anatomy.add(it.step, times, extras.overlap.as_ref().and_then(Value::as_f64));
            }
            records.push(Record { event, time: extras.time });
        }
        Ok(())
    })?;
    Ok((records, anatomy))
}

impl Anatomy {
    /// Adds a window with `times`, an array of seconds by rank for each phase. One of another form is left out.
    pub fn add(&mut self, step: u64, times: &Value, overlap: Option<f64>) {
        let Some(times) = times.as_object() else { return };
        let numbers =
            |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
        if self.phases.is_empty() {
            self.phases = times.keys().cloned().collect();
        }
        let ranks = |phase: &String| numbers(times.get(phase)?);
        let Some(ranks) = self.phases.iter().map(ranks).collect::<Option<Vec<Vec<f64>>>>() else { return };
        let world = ranks.first().map_or(0, Vec::len);
        if world == 0 || ranks.iter().any(|of| of.len() != world) {
            return;
        }
        let means = ranks.iter().map(|of| of.iter().sum::<f64>() / world as f64).collect();
        self.windows.push(Window { step, means, overlap });
        if self.sums.len() != world {
            (self.sums, self.summed) = (vec![vec![0.0; ranks.len()]; world], 0);
        }
        for (phase, of) in ranks.iter().enumerate() {
            self.sums.iter_mut().zip(of).for_each(|(sum, value)| sum[phase] += value);
        }
        self.summed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn reads_times_and_what_another_version_writes() {
        let dir = tempfile::tempdir().unwrap();
        let step =
            r#"{"event":"step","step":1,"epoch":0,"loss":1.0,"lr":0.1,"samples_per_s":1.0,"data_wait":0.0"#;
        let lines = [
            format!(
                "{step},\"times\":{{\"data\":[0.125,0.375],\"comm\":[0.5,1.5]}},\"overlap\":0.5,\"time\":7.5}}"
            ),
            format!("{step},\"times\":\"later\",\"time\":8.5}}"),
            format!("{step}}}"),
        ];
        std::fs::write(dir.path().join("metrics.jsonl"), lines.join("\n") + "\n").unwrap();
        let run = Run::read(dir.path()).unwrap();
        let times: Vec<Option<f64>> = run.records.iter().map(|r| r.time).collect();
        assert_eq!(times, [Some(7.5), Some(8.5), None]);
        assert_eq!(run.anatomy.phases, ["data", "comm"]);
        assert_eq!(run.anatomy.windows, [Window { step: 1, means: vec![0.25, 1.0], overlap: Some(0.5) }]);
    }

    #[test]
    fn sums_are_those_of_the_last_number_of_ranks() {
        let mut anatomy = Anatomy::default();
        for times in [json!({ "data": [8.0] }), json!({ "data": [1.0, 2.0] }), json!({ "data": [3.0, 4.0] })]
        {
            anatomy.add(1, &times, None);
        }
        for wrong in [json!({ "data": [] }), json!({ "data": "1" }), json!({ "other": [1.0] }), json!(1)] {
            anatomy.add(1, &wrong, None);
        }
        assert_eq!((anatomy.windows.len(), anatomy.summed), (3, 2));
        assert_eq!(anatomy.sums, [[4.0], [6.0]]);
    }
}
