//! `metrics.jsonl` on disk: one `write` a line in append mode. A crash or a full disk may tear a line; the next one may follow on the
//! heels of what is left of it. Readers leave out what is torn, wherever it stands, and the next start removes it. A line that is no
//! event stays where it is, and nobody reads it.

use super::events::{EndEvent, Event};
use super::lines::{Line, for_each_line};
use crate::error::{Error, IoContext, Result};
use crate::files::Draft;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Appends events. One per run: rank 0 has it.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
}

/// What a start finds in the file, once it holds nothing that will happen again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    path: PathBuf,
    events: usize,
    /// The last step of which anything is told.
    step: u64,
    /// Lines that are no events, and the number of the first.
    others: usize,
    first_other: usize,
}

impl MetricsWriter {
    /// Opens for appending; creates the file. What a crash has left of a line is removed.
    pub fn open(path: &Path) -> Result<Self> {
        rewrite(path, |_, _| true)?;
        Ok(Self { path: path.to_owned(), file: append(path)? })
    }

    /// Writes one line. It is in the kernel's hands when this returns; see [`syncing`](Self::syncing).
    ///
    /// # Errors
    /// A full disk, say. Nothing of the line is left then.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.write_by(event, |mut file, line| file.write_all(line))
    }

    fn write_by(
        &mut self,
        event: &Event,
        write_all: impl FnOnce(&File, &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        let mut line = serde_json::to_vec(event)
            .map_err(|e| Error::internal(format!("cannot write an event as JSON: {e}")))?;
        line.push(b'\n');
        let whole = self.file.metadata().doing("write", &self.path)?.len();
        let written = write_all(&self.file, &line).inspect_err(|_| {
            // Where this fails too, readers know a torn line.
            let _ = self.file.set_len(whole);
        });
        written.doing("write", &self.path)
    }

    /// What waits until all lines that are written are on the disk, on any thread. Called before a checkpoint is written, so
    /// that no checkpoint is ahead of its metrics.
    pub fn syncing(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        let path = self.path.clone();
        let file = self.file.try_clone().doing("write", &path)?;
        Ok(move || file.sync_data().doing("write", &path))
    }

    /// Drops whatever happened after `step`, the ends and resumptions of what was set aside included.
    pub fn cut_after(path: &Path, step: u64) -> Result<()> {
        rewrite(path, |_, event| event.step().is_none_or(|s| s <= step)).map(drop)
    }

    /// On resume: drops what a checkpoint at `step` with `epochs_completed` does not know, namely steps and checkpoints
    /// after `step`, and epochs not completed; they will happen again. Restarts, resumes and ends are history
    /// and stay. The file is replaced atomically.
    pub fn truncate_after(&mut self, step: u64, epochs_completed: u64) -> Result<Found> {
        let found = rewrite(&self.path, |_, event| match event {
            Event::Step(e) => e.step <= step,
            Event::Checkpoint(e) => e.step <= step,
            Event::Epoch(e) => e.epoch < epochs_completed,
            Event::Restart(_) | Event::Resume(_) | Event::End(_) => true,
        })?;
        self.file = append(&self.path)?;
        Ok(found)
    }

    /// Writes the run's end, in the place of another one where that is the last event: who writes it later knows more.
    pub fn conclude(path: &Path, end: EndEvent) -> Result<()> {
        let mut told = None;
        if path.exists() {
            for_each_line(path, |line| {
                match line.event {
                    Some(Event::End(_)) => told = Some(line.number),
                    Some(_) => told = None,
                    None => {}
                }
                Ok(())
            })?;
        }
        rewrite(path, |number, event| Some(number) != told || !matches!(event, Event::End(_)))?;
        Self::open(path)?.write(&Event::End(end))
    }
}

impl Found {
    /// What is odd about the metrics of a run that goes on at `step` and writes a line `every` so many: `own` if they are to lead there.
    pub fn doubts(&self, step: u64, every: u64, own: bool) -> Vec<String> {
        let path = self.path.display();
        let missing = (own && self.step / every < step / every).then(|| {
            format!(
                "{path} ends at step {}, where the run goes on at step {step}: the lines between are missing",
                self.step
            )
        });
        let foreign = match self.others {
            0 => None,
            1 => Some(format!(
                "line {} of {path} is no event that this version knows; it stays, and nothing reads it",
                self.first_other
            )),
            n => Some(format!(
                "{n} lines of {path} are no events that this version knows, the first is line {}; they stay, and nothing reads them",
                self.first_other
            )),
        };
        missing.into_iter().chain(foreign).collect()
    }

    pub fn has_events(&self) -> bool {
        self.events > 0
    }

    fn count(&mut self, line: &Line<'_>) {
        match &line.event {
            Some(event) => {
                self.events += 1;
                // Where it ended is not what the metrics tell of.
                let told = !matches!(event, Event::End(_));
                self.step = self.step.max(event.step().filter(|_| told).unwrap_or(0));
            }
            None if line.ends => {
                self.others += 1;
                self.first_other = if self.others == 1 { line.number } else { self.first_other };
            }
            None => {}
        }
    }
}

/// All events in the file, in order. Torn lines, events of kinds unknown to this version and lines of others are left out.
pub fn read_events(path: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for_each_line(path, |line| {
        events.extend(line.event);
        Ok(())
    })?;
    Ok(events)
}

/// Keeps the events that `keep` wants, by their line's number, and all that is none. Does not touch a file that needs no change.
fn rewrite(path: &Path, keep: impl Fn(usize, &Event) -> bool) -> Result<Found> {
    let mut found = Found { path: path.to_owned(), ..Found::default() };
    if !path.exists() {
        return Ok(found);
    }
    let stays = |line: &Line<'_>| line.event.as_ref().is_none_or(|event| keep(line.number, event));
    let mut length = 0;
    for_each_line(path, |line| {
        if stays(&line) {
            length += line.bytes.len() as u64 + u64::from(line.ends);
            found.count(&line);
        }
        Ok(())
    })?;
    if fs::metadata(path).doing("read", path)?.len() == length {
        return Ok(found);
    }
    let mut out = Draft::under(path.with_extension("jsonl.partial"), path).doing("write", path)?;
    for_each_line(path, |line| {
        let newline: &[u8] = if line.ends { b"\n" } else { b"" };
        match stays(&line) {
            true => out.write_all(line.bytes).and_then(|()| out.write_all(newline)).doing("write", path),
            false => Ok(()),
        }
    })?;
    out.put_synced().doing("write", path)?;
    Ok(found)
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).doing("write", path)
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
