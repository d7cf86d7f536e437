//! Files in the Trace Event Format of Chrome: a process is a rank, and times are in microseconds.

use base::error::{Error, IoContext, Result};
use base::files::AtomicFile;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

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
    /// Since 1970 in the file of one rank, so that the times of several ranks can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dur: Option<u64>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

/// A file has an event a line, between these, so that neither writing nor merging needs all of them at once.
const HEAD: &str = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
const TAIL: &str = "]}";

/// Writes a file with the events that `fill` passes to its argument.
pub(super) fn write(
    place: &Path,
    fill: impl FnOnce(&mut dyn FnMut(TraceEvent) -> Result<()>) -> Result<()>,
) -> Result<()> {
    fs::create_dir_all(base::files::folder(place)).doing("create the folder of", place)?;
    let mut draft = AtomicFile::new(place).doing("write", place)?;
    draft.write_all(HEAD.as_bytes()).doing("write", place)?;
    let mut before = "\n";
    fill(&mut |event| {
        draft.write_all(before.as_bytes()).doing("write", place)?;
        before = ",\n";
        serde_json::to_writer(&mut draft, &event).map_err(io::Error::from).doing("write", place)
    })?;
    draft.write_all(format!("\n{TAIL}\n").as_bytes()).doing("write", place)?;
    draft.put().doing("write", place)
}

/// Passes the events of a file that [`write`] has written to `f`.
fn read(place: &Path, mut f: impl FnMut(TraceEvent) -> Result<()>) -> Result<()> {
    let wrong =
        |why: &str| Error::internal(format!("{} is not a trace of this version: {why}", place.display()));
    let mut last = String::new();
    for line in BufReader::new(base::files::open(place).doing("read", place)?).lines() {
        last = line.doing("read", place)?;
        if last != HEAD && last != TAIL {
            let event = serde_json::from_str(last.trim_end_matches(','));
            f(event.map_err(|e| wrong(&e.to_string()))?)?;
        }
    }
    if last == TAIL { Ok(()) } else { Err(wrong("it has no end")) }
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

/// Merges the existing parts of `world` ranks in a run's folder; their times begin at 0. Returns
/// the file, and which ranks it has. It does nothing without parts with events.
///
/// # Errors
/// A file cannot be read or written.
pub fn merge(out_dir: &Path, world: usize) -> Result<Option<(PathBuf, Vec<usize>)>> {
    let parts: Vec<(usize, PathBuf)> =
        (0..world).map(|rank| (rank, super::part(out_dir, rank))).filter(|(_, part)| part.exists()).collect();
    let mut begin = None;
    for (_, part) in &parts {
        read(part, |event| {
            begin = begin.into_iter().chain(event.ts).min();
            Ok(())
        })?;
    }
    let Some(begin) = begin else { return Ok(None) };
    let place = super::path(out_dir);
    write(&place, |put| {
        let moved = |event: TraceEvent| TraceEvent { ts: event.ts.map(|at| at - begin), ..event };
        parts.iter().try_for_each(|(_, part)| read(part, |event| put(moved(event))))
    })?;
    Ok(Some((place, parts.into_iter().map(|(rank, _)| rank).collect())))
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

    fn written(dir: &Path, rank: usize, events: impl IntoIterator<Item = TraceEvent>) {
        write(&super::super::part(dir, rank), |put| events.into_iter().try_for_each(put)).unwrap();
    }

    #[test]
    fn parts_of_ranks_are_put_together_from_their_first_moment_on() {
        let dir = tempfile::tempdir().unwrap();
        assert!(merge(dir.path(), 3).unwrap().is_none());
        for (rank, ts) in [(0, 1_763_873_456_123_456), (2, 1_763_873_456_123_400), (3, 5)] {
            let names = TraceEvent::names("process", rank, 1, &format!("rank {rank}"));
            let events = names.into_iter().chain([event(rank, ts)]);
            written(dir.path(), rank, events);
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
        written(dir.path(), 0, []);
        assert!(merge(dir.path(), 1).unwrap().is_none());
        for torn in ["{", "", HEAD] {
            fs::write(super::super::part(dir.path(), 0), torn).unwrap();
            assert!(merge(dir.path(), 1).unwrap_err().message.contains("rank-0.json"), "{torn}");
        }
    }
}
