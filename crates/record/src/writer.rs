//! Writes `metrics.jsonl`. A crash or a full disk may leave a torn line, and the
//! next line may follow it without a newline. Readers skip torn lines, and the next start removes them. A line that is
//! not an event is kept and ignored.

use super::appender::Appender;
use super::events::{DivergenceEvent, Event, Stamped};
use super::lines::{Line, for_each_line};
use base::error::{IoContext, Result};
use base::files::AtomicFile;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Appends events. There is one per run, on rank 0.
#[derive(Debug)]
pub struct MetricsWriter {
    lines: Appender,
}

/// What a start finds in the file after truncation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExistingMetrics {
    path: PathBuf,
    events: usize,
    /// The last step of any event other than an end.
    step: u64,
    /// Restart events.
    pub restarts: u64,
    /// The last one.
    pub divergence: Option<DivergenceEvent>,
    /// Lines that are not events, and the number of the first.
    others: usize,
    first_other: usize,
}

impl MetricsWriter {
    /// Opens the file for appending, creating it if necessary, and removes a torn line.
    pub fn open(path: &Path) -> Result<Self> {
        rewrite(path, |_, _| true)?;
        Ok(Self { lines: Appender::open(path)? })
    }

    /// Writes one line; see `Appender::write`.
    pub fn write(&mut self, event: &Stamped<'_>) -> Result<()> {
        self.lines.write(event)
    }

    /// See `Appender::syncing`.
    pub fn syncing(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        self.lines.syncing()
    }

    /// Removes all events after `step`, including ends and resumes: they belong to the archived branch.
    pub fn cut_after(path: &Path, step: u64) -> Result<()> {
        rewrite(path, |_, event| event.step().is_none_or(|s| s <= step)).map(drop)
    }

    /// On resume: removes what a checkpoint at `step` with `epochs_completed` does not include: steps and checkpoints
    /// after `step`, and incomplete epochs. They will happen again. Restart, resume and end events are history and are
    /// kept. The file is replaced atomically.
    pub fn truncate_after(&mut self, step: u64, epochs_completed: u64) -> Result<ExistingMetrics> {
        let found = rewrite(self.lines.path(), |_, event| match event {
            Event::Step(e) => e.step <= step,
            Event::Checkpoint(e) => e.step <= step,
            Event::Epoch(e) => e.epoch < epochs_completed,
            Event::Restart(_) | Event::Resume(_) | Event::End(_) | Event::Divergence(_) => true,
        })?;
        self.lines = Appender::open(self.lines.path())?;
        Ok(found)
    }

    /// Keeps the first `kept` events and appends the end of the run.
    pub(crate) fn replace_end(path: &Path, kept: usize, end: &Event) -> Result<()> {
        rewrite(path, |index, _| index < kept)?;
        Appender::open(path)?.write(&Stamped::now(end))
    }
}

impl ExistingMetrics {
    /// Warnings about the metrics of a run that resumes at `step` and writes a line every `every` steps. `own`: they
    /// should lead up to `step`.
    pub fn warnings(&self, step: u64, every: u64, own: bool) -> Vec<String> {
        let path = self.path.display();
        let missing = (own && self.step / every < step / every).then(|| {
            format!(
                "{path} ends at step {}, but the run resumes at step {step}: the lines between are missing",
                self.step
            )
        });
        let foreign = match self.others {
            0 => None,
            1 => Some(format!(
                "line {} of {path} is not an event known to this version; it is kept and ignored",
                self.first_other
            )),
            n => Some(format!(
                "{n} lines of {path} are not events known to this version, the first is line {}; they are kept and ignored",
                self.first_other
            )),
        };
        missing.into_iter().chain(foreign).collect()
    }

    /// Whether the file has an event of this version.
    pub fn has_events(&self) -> bool {
        self.events > 0
    }

    fn count(&mut self, line: &Line<'_>) {
        match &line.event {
            Some(event) => {
                self.events += 1;
                self.restarts += u64::from(matches!(event, Event::Restart(_)));
                if let Event::Divergence(last) = event {
                    self.divergence = Some(last.clone());
                }
                // These do not show which steps have lines.
                let counted = !matches!(event, Event::End(_) | Event::Divergence(_));
                self.step = self.step.max(event.step().filter(|_| counted).unwrap_or(0));
            }
            None if line.ends => {
                self.others += 1;
                self.first_other = if self.others == 1 { line.number } else { self.first_other };
            }
            None => {}
        }
    }
}

/// Reads all events in order. Torn lines, foreign lines and events unknown to this version are left out.
pub fn read_events(path: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for_each_event(path, |event| events.push(event))?;
    Ok(events)
}

/// As [`read_events`], one event at a time: a long run's metrics need not fit in memory.
pub fn for_each_event(path: &Path, mut f: impl FnMut(Event)) -> Result<()> {
    for_each_line(path, |line| {
        line.event.into_iter().for_each(&mut f);
        Ok(())
    })
}

/// Keeps the events for which `keep` (with the event's index) is true, and all lines that are not events. A file that
/// needs no change is not touched.
fn rewrite(path: &Path, keep: impl Fn(usize, &Event) -> bool) -> Result<ExistingMetrics> {
    let mut found = ExistingMetrics { path: path.to_owned(), ..ExistingMetrics::default() };
    if !path.exists() {
        return Ok(found);
    }
    let stays = |line: &Line<'_>, index: &mut usize| {
        line.event.as_ref().is_none_or(|event| {
            *index += 1;
            keep(*index - 1, event)
        })
    };
    let (mut length, mut index) = (0, 0);
    for_each_line(path, |line| {
        if stays(&line, &mut index) {
            length += line.bytes.len() as u64 + u64::from(line.ends);
            found.count(&line);
        }
        Ok(())
    })?;
    if fs::metadata(path).doing("read", path)?.len() == length {
        return Ok(found);
    }
    let mut out = AtomicFile::under(path.with_extension("jsonl.partial"), path).doing("write", path)?;
    index = 0;
    for_each_line(path, |line| {
        let newline: &[u8] = if line.ends { b"\n" } else { b"" };
        match stays(&line, &mut index) {
            true => out.write_all(line.bytes).and_then(|()| out.write_all(newline)).doing("write", path),
            false => Ok(()),
        }
    })?;
    out.put_synced().doing("write", path)?;
    Ok(found)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
