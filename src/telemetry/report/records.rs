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
    /// Of a step event.
    pub anatomy: Option<Anatomy>,
}

/// Where the time of a step goes: optional fields of a step event.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Anatomy {
    /// Mean seconds per step of each rank, by phase (`data`, `forward` …), in the order of the line.
    pub phases: Vec<(String, Vec<f64>)>,
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
        Ok(Self {
            name: starts.last().map_or(folder_name, |start| start.name.clone()),
            records: read(&folder.join("metrics.jsonl"))?,
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

    /// The step events that tell where their time goes.
    pub fn anatomies(&self) -> impl Iterator<Item = (u64, &Anatomy)> {
        self.records.iter().filter_map(|r| Some((r.event.step()?, r.anatomy.as_ref()?)))
    }

    /// Names of the metrics of epochs, in the order of their first appearance.
    pub fn metrics(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for epoch in self.epochs() {
            for (name, _) in epoch.train.iter().chain(epoch.val.iter().flat_map(|val| val.iter())) {
                if name != "n" && !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        names
    }
}

fn read(path: &Path) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for_each_line(path, |line| {
        if let Some(event) = line.event {
            let extras: Extras = serde_json::from_slice(line.bytes).unwrap_or_default();
            let anatomy = matches!(event, Event::Step(_)).then(|| anatomy(&extras)).flatten();
            records.push(Record { event, time: extras.time, anatomy });
        }
        Ok(())
    })?;
    Ok(records)
}

fn anatomy(extras: &Extras) -> Option<Anatomy> {
    let numbers = |value: &Value| value.as_array()?.iter().map(Value::as_f64).collect::<Option<Vec<f64>>>();
    let times = extras.times.as_ref()?.as_object()?;
    let phases: Vec<(String, Vec<f64>)> = times
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), numbers(value).filter(|ranks| !ranks.is_empty())?)))
        .collect();
    let overlap = extras.overlap.as_ref().and_then(Value::as_f64);
    (!phases.is_empty()).then_some(Anatomy { phases, overlap })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_and_what_another_version_writes() {
        let dir = tempfile::tempdir().unwrap();
        let step =
            r#"{"event":"step","step":1,"epoch":0,"loss":1.0,"lr":0.1,"samples_per_s":1.0,"data_wait":0.0"#;
        let lines = [
            format!(
                "{step},\"times\":{{\"data\":[0.1,0.2],\"comm\":[0.3,0.4]}},\"overlap\":0.5,\"time\":7.5}}"
            ),
            format!("{step},\"times\":\"later\",\"time\":8.5}}"),
            format!("{step}}}"),
        ];
        std::fs::write(dir.path().join("metrics.jsonl"), lines.join("\n") + "\n").unwrap();
        let records = Run::read(dir.path()).unwrap().records;
        let phases = vec![("data".to_owned(), vec![0.1, 0.2]), ("comm".to_owned(), vec![0.3, 0.4])];
        assert_eq!(records[0].anatomy, Some(Anatomy { phases, overlap: Some(0.5) }));
        let times: Vec<Option<f64>> = records.iter().map(|r| r.time).collect();
        assert_eq!(times, [Some(7.5), Some(8.5), None]);
        assert!(records[1].anatomy.is_none() && records[2].anatomy.is_none());
    }
}
