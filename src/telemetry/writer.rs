//! `metrics.jsonl` on disk: one `write` a line in append mode, so that a line is there whole or, after a crash, torn at
//! the very end, where the next start removes it.

use super::events::Event;
use crate::error::{Error, ExitCode, IoContext, Result};
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// No line that this program writes comes near; what is longer is not one of its lines.
const MAX_LINE: usize = 1 << 20;

/// Appends events. One per run: rank 0 has it.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
}

impl MetricsWriter {
    /// Opens for appending; creates the file. A torn last line, left by a crash, is removed.
    pub fn open(path: &Path) -> Result<Self> {
        rewrite(path, |_| true)?;
        Ok(Self { path: path.to_owned(), file: append(path)? })
    }

    /// Writes one line. It is in the kernel's hands when this returns; see [`syncing`](Self::syncing).
    pub fn write(&mut self, event: &Event) -> Result<()> {
        let mut line = serde_json::to_vec(event)
            .map_err(|e| Error::internal(format!("cannot write an event as JSON: {e}")))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(|e| unwritable(&self.path, &e))
    }

    /// What waits until all lines that are written are on the disk, on any thread. Called before a checkpoint is written, so
    /// that no checkpoint is ahead of its metrics.
    pub fn syncing(&self) -> Result<impl FnOnce() -> Result<()> + Send + use<>> {
        let path = self.path.clone();
        let file = self.file.try_clone().map_err(|e| unwritable(&path, &e))?;
        Ok(move || file.sync_data().map_err(|e| unwritable(&path, &e)))
    }

    /// Drops whatever happened after `step`, the ends and resumptions of what was set aside included.
    pub fn cut_after(path: &Path, step: u64) -> Result<()> {
        rewrite(path, |mark| mark.step.is_none_or(|s| s <= step))
    }

    /// On resume: drops what a checkpoint at `step` with `epochs_completed` does not know, namely steps and checkpoints
    /// after `step`, and epochs not completed; they will happen again. Restarts, resumes and ends are history
    /// and stay. The file is replaced atomically.
    pub fn truncate_after(&mut self, step: u64, epochs_completed: u64) -> Result<()> {
        rewrite(&self.path, |mark| match mark.event.as_str() {
            "step" | "checkpoint" => mark.step.is_none_or(|s| s <= step),
            "epoch" => mark.epoch.is_none_or(|e| e < epochs_completed),
            _ => true,
        })?;
        self.file = append(&self.path)?;
        Ok(())
    }
}

/// All events in the file, in order. A torn last line and events of kinds unknown to this version are left out; any
/// other line that is not an event is an error, with its number.
pub fn read_events(path: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut number = 0;
    for_each_line(path, |line| {
        number += 1;
        match serde_json::from_slice::<Event>(line) {
            Ok(event) => events.push(event),
            // Valid JSON with a kind that only a later version knows.
            Err(_) if serde_json::from_slice::<Mark>(line).is_ok_and(|m| !m.is_known()) => {}
            Err(e) => return Err(damaged(path, number, &e.to_string())),
        }
        Ok(())
    })?;
    Ok(events)
}

/// As much of an event as decides whether it stays.
#[derive(Deserialize)]
struct Mark {
    event: String,
    step: Option<u64>,
    epoch: Option<u64>,
}

impl Mark {
    fn is_known(&self) -> bool {
        ["step", "epoch", "checkpoint", "restart", "resume", "end"].contains(&self.event.as_str())
    }
}

/// Keeps the lines that `keep` wants, and no torn last line. Does not touch a file that needs no change.
fn rewrite(path: &Path, keep: impl Fn(&Mark) -> bool) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let mut number = 0;
    let mut kept = 0;
    for_each_line(path, |line| {
        number += 1;
        let mark = serde_json::from_slice::<Mark>(line).map_err(|e| damaged(path, number, &e.to_string()))?;
        if keep(&mark) {
            kept += line.len() as u64 + 1;
        }
        Ok(())
    })?;
    if fs::metadata(path).doing("read", path)?.len() == kept {
        return Ok(());
    }
    let partial = path.with_extension("jsonl.partial");
    let mut out = BufWriter::new(File::create(&partial).map_err(|e| unwritable(&partial, &e))?);
    for_each_line(path, |line| {
        // Every line was read as a mark just now.
        if serde_json::from_slice::<Mark>(line).is_ok_and(|mark| keep(&mark)) {
            out.write_all(line).and_then(|()| out.write_all(b"\n")).map_err(|e| unwritable(&partial, &e))?;
        }
        Ok(())
    })?;
    let file = out.into_inner().map_err(|e| unwritable(&partial, e.error()))?;
    super::persist(file, &partial, path).map_err(|e| unwritable(path, &e))
}

/// Calls `f` with every complete line, without its newline.
fn for_each_line(path: &Path, mut f: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::new(File::open(path).doing("read", path)?);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let limit = MAX_LINE as u64 + 1;
        let n = std::io::Read::take(&mut reader, limit).read_until(b'\n', &mut line).doing("read", path)?;
        match line.last() {
            Some(b'\n') => f(&line[..n - 1])?,
            Some(_) if n > MAX_LINE => return Err(damaged(path, number, "longer than 1 MiB")),
            // The end, or a torn line before it.
            _ => return Ok(()),
        }
    }
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).map_err(|e| unwritable(path, &e))
}

fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::new(ExitCode::Checkpoint, format!("cannot write {}: {e}", path.display()))
}

fn damaged(path: &Path, number: usize, why: &str) -> Error {
    Error::new(ExitCode::Checkpoint, format!("{} is damaged at line {number}: {why}", path.display()))
        .hint("remove that line, or move the file away to start a new one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{CheckpointEvent, EpochEvent, Metrics, RestartEvent, StepEvent};

    fn step(step: u64) -> Event {
        Event::Step(StepEvent {
            step,
            epoch: (step - 1) / 4,
            loss: 1.0 / step as f64,
            lr: 0.1,
            samples_per_s: 10.0,
            grad_norm: None,
            data_wait: None,
        })
    }

    fn epoch(epoch: u64) -> Event {
        Event::Epoch(EpochEvent {
            epoch,
            train: Metrics::new(0.5),
            val: None,
            seconds: 1.0,
            step: (epoch + 1) * 4,
            lr: 0.1,
            samples_per_s: 10.0,
            data_wait: 0.0,
        })
    }

    fn checkpoint(step: u64) -> Event {
        Event::Checkpoint(CheckpointEvent {
            step,
            epoch: step / 4,
            path: "c".into(),
            bytes: 1,
            seconds: 0.1,
            held_up_s: None,
        })
    }

    fn written(events: &[Event]) -> (tempfile::TempDir, PathBuf, MetricsWriter) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut writer = MetricsWriter::open(&path).unwrap();
        for event in events {
            writer.write(event).unwrap();
        }
        (dir, path, writer)
    }

    #[test]
    fn what_a_checkpoint_does_not_know_is_dropped_and_appended_again_without_duplicates() {
        let restart = Event::Restart(RestartEvent { attempt: 1, reason: "killed".into() });
        let (_dir, path, mut writer) = written(&[
            step(1),
            step(2),
            step(3),
            step(4),
            checkpoint(4),
            epoch(0),
            step(5),
            step(6),
            restart.clone(),
            step(7),
        ]);
        writer.truncate_after(5, 1).unwrap();
        writer.write(&step(6)).unwrap();
        let left = [step(1), step(2), step(3), step(4), checkpoint(4), epoch(0), step(5), restart, step(6)];
        assert_eq!(read_events(&path).unwrap(), left);
        assert!(!path.with_extension("jsonl.partial").exists());
    }

    #[test]
    fn an_epoch_line_goes_when_its_checkpoint_came_before_its_validation() {
        // The checkpoint at the epoch's last step was written, but the epoch did not count as completed.
        let (_dir, path, mut writer) = written(&[step(4), checkpoint(4), epoch(0)]);
        writer.truncate_after(4, 0).unwrap();
        assert_eq!(read_events(&path).unwrap(), [step(4), checkpoint(4)]);
    }

    #[test]
    fn a_torn_last_line_is_removed_on_open() {
        let (_dir, path, writer) = written(&[step(1), step(2)]);
        drop(writer);
        let whole = fs::read(&path).unwrap();
        for cut in 1..whole.len() / 2 {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            assert_eq!(read_events(&path).unwrap(), [step(1)], "cut by {cut}");
            let mut writer = MetricsWriter::open(&path).unwrap();
            writer.write(&step(2)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), whole, "cut by {cut}");
        }
    }

    #[test]
    fn a_file_that_needs_no_change_is_not_replaced() {
        use std::os::unix::fs::MetadataExt;
        let (_dir, path, mut writer) = written(&[step(1), step(2)]);
        let inode = fs::metadata(&path).unwrap().ino();
        writer.truncate_after(2, 0).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[test]
    fn damage_in_the_middle_is_an_error_that_names_the_line_and_changes_nothing() {
        let (_dir, path, writer) = written(&[step(1), step(2)]);
        drop(writer);
        let mut bytes = fs::read(&path).unwrap();
        bytes[3] = 0xff;
        fs::write(&path, &bytes).unwrap();
        for error in [read_events(&path).unwrap_err(), MetricsWriter::open(&path).unwrap_err()] {
            assert!(error.message.contains("line 1"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }

    #[test]
    fn events_of_a_later_version_are_kept_and_not_read() {
        let (_dir, path, writer) = written(&[step(1)]);
        drop(writer);
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("{\"event\":\"sparkle\",\"step\":9}\n");
        fs::write(&path, &text).unwrap();
        assert_eq!(read_events(&path).unwrap(), [step(1)]);
        MetricsWriter::open(&path).unwrap().truncate_after(1, 0).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
