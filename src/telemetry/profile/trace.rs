//! Files in the Trace Event Format of Chrome: a process is a rank, and times are in microseconds.

use crate::error::{Error, IoContext, Result};
use crate::files::Draft;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Trace {
    #[serde(rename = "traceEvents")]
    pub events: Vec<TraceEvent>,
    #[serde(rename = "displayTimeUnit")]
    unit: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TraceEvent {
    pub name: String,
    /// `X`, an event with begin and length, or `M`, a name of a process or thread.
    pub ph: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cat: String,
    /// The rank.
    pub pid: usize,
    /// From 1.
    pub tid: usize,
    /// Since 1970 in the file of one rank, so that those of several ranks can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dur: Option<u64>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

impl Trace {
    pub fn new(events: Vec<TraceEvent>) -> Self {
        Self { events, unit: "ms".to_owned() }
    }

    pub fn write(&self, place: &Path) -> Result<()> {
        fs::create_dir_all(crate::files::folder(place)).doing("create the folder of", place)?;
        let mut draft = Draft::new(place).doing("write", place)?;
        serde_json::to_writer(&mut draft, self)
            .map_err(|e| Error::internal(format!("cannot write {}: {e}", place.display())))?;
        draft.put().doing("write", place)
    }

    fn read(place: &Path) -> Result<Self> {
        let bytes = fs::read(place).doing("read", place)?;
        let wrong = |e| Error::internal(format!("{} is no trace: {e}", place.display()));
        serde_json::from_slice(&bytes).map_err(wrong)
    }
}

impl TraceEvent {
    /// Names a process (`process_name`) or a thread (`thread_name`), and places it.
    pub fn names(what: &str, pid: usize, tid: usize, name: &str) -> [Self; 2] {
        let event = |kind: &str, key: &str, value: Value| Self {
            name: format!("{what}_{kind}"),
            ph: "M".to_owned(),
            cat: String::new(),
            pid,
            tid,
            ts: None,
            dur: None,
            args: Map::from_iter([(key.to_owned(), value)]),
        };
        let place = if what == "process" { pid } else { tid };
        [event("name", "name", name.into()), event("sort_index", "sort_index", json!(place))]
    }
}

/// Puts the parts of `world` ranks in a run's folder together, as far as they are there; their times begin at 0. Returns
/// the file, and which ranks it has. It does nothing without parts with events.
///
/// # Errors
/// A file cannot be read or written.
pub fn merge(out_dir: &Path, world: usize) -> Result<Option<(PathBuf, Vec<usize>)>> {
    let (mut all, mut ranks) = (Vec::new(), Vec::new());
    for rank in 0..world {
        let part = super::part(out_dir, rank);
        if part.exists() {
            all.extend(Trace::read(&part)?.events);
            ranks.push(rank);
        }
    }
    let Some(begin) = all.iter().filter_map(|event| event.ts).min() else { return Ok(None) };
    all.iter_mut().filter_map(|event| event.ts.as_mut()).for_each(|at| *at -= begin);
    let place = super::path(out_dir);
    Trace::new(all).write(&place)?;
    Ok(Some((place, ranks)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(pid: usize, ts: u64) -> TraceEvent {
        TraceEvent {
            name: "step".to_owned(),
            ph: "X".to_owned(),
            cat: "step".to_owned(),
            pid,
            tid: 1,
            ts: Some(ts),
            dur: Some(5),
            args: Map::new(),
        }
    }

    #[test]
    fn parts_of_ranks_are_put_together_from_their_first_moment_on() {
        let dir = tempfile::tempdir().unwrap();
        assert!(merge(dir.path(), 3).unwrap().is_none());
        for (rank, ts) in [(0, 1_763_873_456_123_456), (2, 1_763_873_456_123_400), (3, 5)] {
            let names = TraceEvent::names("process", rank, 1, &format!("rank {rank}"));
            let events = names.into_iter().chain([event(rank, ts)]).collect();
            Trace::new(events).write(&super::super::part(dir.path(), rank)).unwrap();
        }
        // Rank 3 is of an earlier start.
        let (place, ranks) = merge(dir.path(), 3).unwrap().unwrap();
        assert_eq!(ranks, [0, 2]);
        let json: Value = serde_json::from_slice(&fs::read(place).unwrap()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 6);
        assert_eq!(
            events[0],
            json!({ "name": "process_name", "ph": "M", "pid": 0, "tid": 1, "args": { "name": "rank 0" } })
        );
        assert_eq!(
            events[2],
            json!({ "name": "step", "ph": "X", "cat": "step", "pid": 0, "tid": 1, "ts": 56, "dur": 5 })
        );
        assert_eq!(events[5]["ts"], 0);
    }

    #[test]
    fn parts_without_events_make_no_file() {
        let dir = tempfile::tempdir().unwrap();
        Trace::new(Vec::new()).write(&super::super::part(dir.path(), 0)).unwrap();
        assert!(merge(dir.path(), 1).unwrap().is_none());
        fs::write(super::super::part(dir.path(), 0), "{").unwrap();
        assert!(merge(dir.path(), 1).unwrap_err().message.contains("rank-0.json"));
    }
}
