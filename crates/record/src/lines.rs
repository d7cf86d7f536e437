//! Parses `metrics.jsonl` line by line: events, torn events left by a crash or a full disk, and foreign lines.

use super::events::Event;
use base::error::{IoContext, Result};
use base::files;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

/// Far above the longest line that this program writes; longer lines are read in pieces.
pub const MAX_LINE: usize = 1 << 20;

/// The start of every event line. It occurs nowhere else in one, because quotes in strings are escaped.
const EVENT_START: &[u8] = b"{\"event\":";

/// A line, or a piece of one that is too long to be an event.
pub struct Line<'a> {
    /// From 1.
    pub number: usize,
    /// `None` if it is not an event known to this version.
    pub event: Option<Event>,
    /// Without the newline.
    pub bytes: &'a [u8],
    /// This is the end of the line.
    pub ends: bool,
}

/// Calls `f` with every line, in order, leaving out torn ones.
pub fn for_each_line(path: &Path, mut f: impl FnMut(Line<'_>) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::new(files::open(path).doing("read", path)?);
    let (mut read, mut number, mut within) = (Vec::new(), 1, false);
    loop {
        read.clear();
        let limit = MAX_LINE as u64;
        let n = io::Read::take(&mut reader, limit).read_until(b'\n', &mut read).doing("read", path)?;
        let whole = read.last() == Some(&b'\n');
        let last = !whole && n < MAX_LINE;
        let (line, ends) = (&read[..n - usize::from(whole)], whole || last);
        if within || !ends {
            f(Line { number, event: None, bytes: line, ends })?;
        } else {
            let mut lines = events(line, whole).into_iter();
            lines.try_for_each(|(event, bytes)| f(Line { number, event, bytes, ends }))?;
        }
        if last {
            return Ok(());
        }
        within = !whole;
        number += usize::from(whole);
    }
}

/// The events of a line: one, or a complete one that follows torn ones. A line with any other content is foreign and is
/// returned whole.
pub(super) fn events(line: &[u8], whole: bool) -> Vec<(Option<Event>, &[u8])> {
    let mut parts = parts(line);
    if !whole && parts.last().is_none_or(|part| is_torn_event(part)) {
        parts.pop();
    }
    let mut found = Vec::new();
    for part in parts {
        match parse_part(part) {
            LinePart::Torn => {}
            LinePart::Event(event, bytes) => found.push((*event, bytes)),
            LinePart::Foreign => return vec![(None, line)],
        }
    }
    found
}

/// Splits a line wherever an event may start.
fn parts(line: &[u8]) -> Vec<&[u8]> {
    // Comparing at every byte would take much of the time in which a long run is read.
    let may_start = line.iter().enumerate().skip(1).filter(|(_, byte)| **byte == EVENT_START[0]);
    let mut starts: Vec<usize> =
        may_start.map(|(at, _)| at).filter(|at| line[*at..].starts_with(EVENT_START)).collect();
    starts.insert(0, 0);
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    starts.iter().zip(ends).map(|(start, end)| &line[*start..end]).collect()
}

/// Whether an unterminated line is a torn event. After a power failure it may consist of zeros.
fn is_torn_event(tail: &[u8]) -> bool {
    tail.iter().zip(EVENT_START).all(|(a, b)| a == b) || tail.iter().all(|byte| *byte == 0)
}

enum LinePart<'a> {
    /// An event whose end is missing.
    Torn,
    /// `None` for an event kind of another version.
    Event(Box<Option<Event>>, &'a [u8]),
    Foreign,
}

/// Parses a part. Before the event there may be the first bytes of another torn event, shorter than `EVENT_START`.
fn parse_part(part: &[u8]) -> LinePart<'_> {
    let mut rest = part;
    loop {
        if let Ok(event) = serde_json::from_slice(rest) {
            return LinePart::Event(Box::new(Some(event)), rest);
        }
        let is_event = rest.iter().zip(EVENT_START).all(|(a, b)| a == b);
        match serde_json::from_slice::<serde_json::Value>(rest) {
            Ok(_) => {
                return if is_event { LinePart::Event(Box::new(None), rest) } else { LinePart::Foreign };
            }
            Err(e) if e.is_eof() && is_event => return LinePart::Torn,
            Err(_) => {}
        }
        let torn = (1..EVENT_START.len()).find(|n| rest.ends_with(&EVENT_START[..*n]));
        let Some(torn) = torn else { return LinePart::Foreign };
        rest = &rest[..rest.len() - torn];
    }
}
