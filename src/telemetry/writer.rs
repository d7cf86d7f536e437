//! `metrics.jsonl` on disk: one `write` a line in append mode. A crash or a full disk may tear a line; the next one may follow on the
//! heels of what is left of it. Readers leave out what is torn, wherever it stands, and the next start removes it.

use super::events::Event;
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::files::Draft;
use serde::Deserialize;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// No line that this program writes comes near; what is longer is not one of its lines.
const MAX_LINE: usize = 1 << 20;

/// How every line begins. It stands nowhere else in one: quotes within a text are escaped.
const BEGINNING: &[u8] = b"{\"event\":";

/// Appends events. One per run: rank 0 has it.
#[derive(Debug)]
pub struct MetricsWriter {
    path: PathBuf,
    file: File,
}

impl MetricsWriter {
    /// Opens for appending; creates the file. What a crash has left of a line is removed.
    pub fn open(path: &Path) -> Result<Self> {
        rewrite(path, |_| true)?;
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

/// All events in the file, in order. Torn lines and events of kinds unknown to this version are left out; any other line
/// that is not an event is an error, with its number.
pub fn read_events(path: &Path) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for_each_line(path, |number, line| {
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

/// Keeps the whole lines that `keep` wants. Does not touch a file that needs no change.
fn rewrite(path: &Path, keep: impl Fn(&Mark) -> bool) -> Result<()> {
    if !path.exists() {
        return Ok(());
    }
    let mut kept = 0;
    for_each_line(path, |number, line| {
        let mark = serde_json::from_slice::<Mark>(line).map_err(|e| damaged(path, number, &e.to_string()))?;
        if keep(&mark) {
            kept += line.len() as u64 + 1;
        }
        Ok(())
    })?;
    if fs::metadata(path).doing("read", path)?.len() == kept {
        return Ok(());
    }
    let mut out = Draft::under(path.with_extension("jsonl.partial"), path).doing("write", path)?;
    for_each_line(path, |_, line| {
        // Every line was read as a mark just now.
        if serde_json::from_slice::<Mark>(line).is_ok_and(|mark| keep(&mark)) {
            out.write_all(line).and_then(|()| out.write_all(b"\n")).doing("write", path)?;
        }
        Ok(())
    })?;
    out.put_synced().doing("write", path)
}

/// Calls `f` with every line that is not torn, without its newline, and with its number.
fn for_each_line(path: &Path, mut f: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
    let mut reader = BufReader::new(File::open(path).doing("read", path)?);
    let mut line = Vec::new();
    let mut number = 0;
    loop {
        line.clear();
        number += 1;
        let limit = MAX_LINE as u64 + 1;
        let n = io::Read::take(&mut reader, limit).read_until(b'\n', &mut line).doing("read", path)?;
        let whole = line.last() == Some(&b'\n');
        if n > MAX_LINE && !whole {
            return Err(damaged(path, number, "longer than 1 MiB"));
        }
        let mut parts = parts(&line[..n - usize::from(whole)]);
        if !whole {
            // The end, or what is torn before it.
            parts.pop();
        }
        parts.into_iter().filter_map(untorn).try_for_each(|part| f(number, part))?;
        if !whole {
            return Ok(());
        }
    }
}

/// What stands between two newlines: one line, or torn ones and a whole one on their heels.
fn parts(line: &[u8]) -> Vec<&[u8]> {
    let mut starts: Vec<usize> = (1..line.len()).filter(|at| line[*at..].starts_with(BEGINNING)).collect();
    starts.insert(0, 0);
    let ends = starts.iter().skip(1).copied().chain([line.len()]);
    starts.iter().zip(ends).map(|(start, end)| &line[*start..end]).collect()
}

/// `None` where a line's rest is missing. Less than its beginning may be left of another one behind it.
fn untorn(part: &[u8]) -> Option<&[u8]> {
    let mut rest = part;
    loop {
        let of_ours = rest.iter().zip(BEGINNING).all(|(a, b)| a == b);
        match serde_json::from_slice::<serde_json::Value>(rest) {
            Ok(_) => return Some(rest),
            Err(e) if e.is_eof() && of_ours => return None,
            Err(_) => {}
        }
        let torn = (1..BEGINNING.len()).find(|n| rest.ends_with(&BEGINNING[..*n]));
        let Some(torn) = torn else { return Some(part) };
        rest = &rest[..rest.len() - torn];
    }
}

fn append(path: &Path) -> Result<File> {
    OpenOptions::new().append(true).create(true).open(path).doing("write", path)
}

fn damaged(path: &Path, number: usize, why: &str) -> Error {
    Error::new(ExitCode::Checkpoint, format!("{} is damaged at line {number}: {why}", path.display()))
        .hint("remove that line, or move the file away to start a new one")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{CheckpointEvent, EndEvent, EpochEvent, Metrics, RestartEvent, StepEvent};

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
    fn a_line_that_is_torn_anywhere_is_removed_and_no_whole_one_with_it() {
        let line = |event: &Event| serde_json::to_string(event).unwrap();
        let end = Event::End(EndEvent {
            step: 2,
            epoch: 0,
            reason: "no `{\"event\":` \u{e9}".into(),
            exit_code: 70,
            seconds: 1.5e-7,
        });
        let (first, torn, last) = (line(&step(1)), line(&end), line(&step(3)));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let whole = format!("{first}\n{last}\n");
        // At zero, an empty line where one was to be: nothing of it was written.
        for cut in 1..torn.len() {
            let torn = &torn.as_bytes()[..cut];
            let newline: &[u8] = b"\n";
            // The next line on its heels, twice so, or on a line of its own.
            for middle in [&[torn][..], &[torn, torn], &[torn, newline], &[torn, newline, torn]] {
                let bytes = [first.as_bytes(), newline, &middle.concat(), last.as_bytes(), newline].concat();
                fs::write(&path, &bytes).unwrap();
                assert_eq!(read_events(&path).unwrap(), [step(1), step(3)], "cut at {cut}");
                MetricsWriter::open(&path).unwrap();
                assert_eq!(fs::read_to_string(&path).unwrap(), whole, "cut at {cut}");
            }
        }
        // The line is whole and only its newline is missing.
        fs::write(&path, format!("{first}\n{torn}{last}\n")).unwrap();
        MetricsWriter::open(&path).unwrap();
        assert_eq!(read_events(&path).unwrap(), [step(1), end, step(3)]);
    }

    #[test]
    fn of_a_line_that_could_not_be_written_nothing_is_left() {
        let (_dir, path, mut writer) = written(&[step(1)]);
        let full = writer.write_by(&step(2), |mut file, line| {
            file.write_all(&line[..line.len() / 2])?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert_eq!(full.unwrap_err().code, ExitCode::Checkpoint);
        writer.write(&step(3)).unwrap();
        let lines: Vec<String> = fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(read_events(&path).unwrap(), [step(1), step(3)]);
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
