//! The end of a run as its supervisor records it, when rank 0 knew less or could not write it.

use super::events::{EndEvent, Event, RunEnd};
use super::{MetricsWriter, provenance, read_events, report};
use base::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

/// State of a run's metrics before a start.
#[derive(Clone, Debug)]
pub struct MetricsBaseline {
    path: PathBuf,
    stamp: Option<(u64, SystemTime)>,
    since: Instant,
}

impl MetricsBaseline {
    /// The state of `metrics.jsonl` in `run_dir`, which may be missing.
    pub fn read(run_dir: &Path) -> Self {
        let path = run_dir.join("metrics.jsonl");
        Self { stamp: stamp(&path), path, since: Instant::now() }
    }

    /// Records how the run ended, unless rank 0 recorded the same. Rank 0 may be dead, or know only that it lost a peer:
    /// its end event is replaced. A run that failed before it wrote metrics leaves those of an earlier run unchanged.
    /// Returns whether the report is out of date: rank 0 may also have been killed between its last line and the report.
    fn record(&self, run_dir: &Path, code: u8, reason: &str) -> Result<bool> {
        if stamp(&self.path) == self.stamp {
            return Ok(false);
        }
        // The metrics may have been archived, with nothing written since.
        let mut events = if self.path.exists() { read_events(&self.path)? } else { Vec::new() };
        let recorded = match events.last() {
            Some(Event::End(end)) => Some(end.clone()),
            _ => None,
        };
        if recorded.as_ref().is_none_or(|end| end.exit_code != code) {
            events.truncate(events.len() - usize::from(recorded.is_some()));
            let end = recorded.unwrap_or_else(|| self.end(run_dir, &events));
            let end = Event::End(EndEvent { reason: reason.to_owned(), exit_code: code, ..end });
            MetricsWriter::replace_end(&self.path, events.len(), &end)?;
            return Ok(true);
        }
        Ok(report::is_outdated(run_dir))
    }

    /// [Records](Self::record) the end and writes the report if that is out of date. Returns what could not be written, and what
    /// to do about it.
    fn conclude(&self, run_dir: &Path, code: u8, reason: &str) -> Option<String> {
        let (what, error) = match self.record(run_dir, code, reason) {
            Ok(false) => return None,
            Ok(true) => ("the report", report::write(run_dir).err()?),
            Err(error) => ("the end of the run to its metrics", error),
        };
        let hint = error.hint.map_or_else(String::new, |hint| format!("\n  hint: {hint}"));
        Some(format!("cannot write {what}: {}{hint}", error.message))
    }

    /// Records that a run has ended with the exit code `code` and `error`, with a warning about
    /// what can't be written.
    pub fn conclude_or_warn(&self, run_dir: &Path, code: u8, error: Option<&Error>) {
        let reason = match error {
            Some(e) => e.message.lines().next().unwrap_or_default(),
            None if RunEnd::from_exit_code(code.into()) == RunEnd::Stopped => "stopped",
            None => "done",
        };
        if let Some(problem) = self.conclude(run_dir, code, reason) {
            status!("warning: {problem}");
        }
    }

    /// The end of a run after `events`.
    fn end(&self, run_dir: &Path, events: &[Event]) -> EndEvent {
        let seconds = self.seconds(run_dir);
        let mut end = EndEvent { step: 0, epoch: 0, reason: String::new(), exit_code: 0, seconds };
        for event in events {
            (end.step, end.epoch) = match event {
                Event::Step(it) => (it.step, it.epoch),
                Event::Epoch(it) => (it.step, it.completed()),
                Event::Checkpoint(it) => (it.step.max(end.step), it.epoch),
                Event::Resume(it) => (it.step, it.epoch),
                Event::End(it) => (it.step, it.epoch),
                Event::Divergence(_) => (end.step, end.epoch),
                // A start from the beginning, unless a resume event follows.
                Event::Restart(_) => (0, 0),
            };
        }
        end
    }

    /// The run's duration: up to the checkpoint that this start resumed from, plus the time since.
    fn seconds(&self, run_dir: &Path) -> f64 {
        let parent = provenance::read(&run_dir.join("run.json")).ok().and_then(|file| file.latest.parent);
        parent.map_or(0.0, |parent| parent.seconds) + self.since.elapsed().as_secs_f64()
    }
}

/// The file's length and time of last modification; `None` if it does not exist.
fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.len(), about.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EpochEvent, Provenance, RestartEvent, Stamped, samples};
    use std::fs::File;

    fn ends(folder: &Path) -> Vec<EndEvent> {
        let events = read_events(&folder.join("metrics.jsonl")).unwrap();
        events.into_iter().filter_map(|e| if let Event::End(e) = e { Some(e) } else { None }).collect()
    }

    fn end(exit_code: u8, reason: &str) -> EndEvent {
        EndEvent { step: 7, epoch: 1, reason: reason.into(), exit_code, seconds: 2.0 }
    }

    #[test]
    fn the_supervisor_replaces_the_end_of_rank_0() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let before = MetricsBaseline::read(folder.path());
        assert_eq!(before.conclude(folder.path(), 78, "invalid spec"), None);
        assert!(!path.exists());
        let write = |event: &Event| MetricsWriter::open(&path).unwrap().write(&Stamped::now(event)).unwrap();
        write(&Event::End(end(91, "rank 1 closed its connection")));
        assert_eq!(before.conclude(folder.path(), 90, "rank 1 was killed"), None);
        // One end event, with the duration that rank 0 recorded.
        let first = [end(90, "rank 1 was killed")];
        assert_eq!(ends(folder.path()), first);
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert!(page.contains("rank 1 was killed (exit code 90)"), "{page}");
        // The same again, or an attempt that wrote nothing: the recorded end stays.
        assert_eq!(before.conclude(folder.path(), 90, "once more"), None);
        assert_eq!(MetricsBaseline::read(folder.path()).conclude(folder.path(), 78, "a wrong start"), None);
        assert_eq!(ends(folder.path()), first);
        // Rank 0 was killed in the next attempt and did not record it.
        let before = MetricsBaseline::read(folder.path());
        write(&samples::resume(9, 1));
        let parent = provenance::Parent { path: "checkpoints/step-9".to_owned(), step: 9, seconds: 1e6 };
        let start = Provenance { parent: Some(parent), ..provenance::sample(folder.path()) };
        provenance::write(&folder.path().join("run.json"), start).unwrap();
        assert_eq!(before.conclude(folder.path(), 90, "rank 0 was killed"), None);
        let [kept, last] = &ends(folder.path())[..] else { panic!("{:?}", ends(folder.path())) };
        assert_eq!((kept, last.step, last.reason.as_str()), (&first[0], 9, "rank 0 was killed"));
        assert!(last.seconds > 1e6, "{last:?}");
        // A run that started over and was killed before its first line.
        let before = MetricsBaseline::read(folder.path());
        write(&Event::Restart(RestartEvent { attempt: 1, reason: "nothing was saved".into() }));
        assert_eq!(before.conclude(folder.path(), 90, "rank 0 was killed"), None);
        assert_eq!(ends(folder.path()).last().map(|end| end.step), Some(0));
    }

    /// `max_steps` ended its epoch, and rank 0 was killed before it had recorded more.
    #[test]
    fn an_epoch_that_was_cut_short_is_not_complete() {
        for (cut, completed) in [(true, 2), (false, 3)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            let before = MetricsBaseline::read(folder.path());
            let epoch = Event::Epoch(EpochEvent { cut, ..samples::epoch(2, 0.5) });
            MetricsWriter::open(&path).unwrap().write(&Stamped::now(&epoch)).unwrap();
            assert_eq!(read_events(&path).unwrap(), [epoch]);
            assert_eq!(before.conclude(folder.path(), 90, "rank 0 was killed"), None);
            assert_eq!(ends(folder.path())[0].epoch, completed);
        }
    }

    #[test]
    fn the_file_that_could_not_be_written_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let before = MetricsBaseline::read(folder.path());
        let silent = Event::End(end(91, "rank 1 is silent"));
        MetricsWriter::open(&file("metrics.jsonl")).unwrap().write(&Stamped::now(&silent)).unwrap();
        std::fs::create_dir(file("report.html")).unwrap();
        let problem = before.conclude(folder.path(), 90, "rank 1 was killed").unwrap();
        assert!(
            problem.starts_with("cannot write the report: ") && problem.contains("report.html"),
            "{problem}"
        );
        assert_eq!(ends(folder.path()), [end(90, "rank 1 was killed")]);
        std::fs::remove_file(file("metrics.jsonl")).unwrap();
        std::fs::create_dir(file("metrics.jsonl")).unwrap();
        let problem = before.conclude(folder.path(), 90, "rank 1 was killed").unwrap();
        assert!(problem.starts_with("cannot write the end of the run to its metrics: "), "{problem}");
        std::fs::remove_dir(file("metrics.jsonl")).unwrap();
        std::fs::remove_dir(file("report.html")).unwrap();
        std::fs::write(file("report.html"), "of another program").unwrap();
        MetricsWriter::open(&file("metrics.jsonl")).unwrap().write(&Stamped::now(&silent)).unwrap();
        let problem = before.conclude(folder.path(), 90, "rank 1 was killed").unwrap();
        let expected =
            "report.html was not written by ddp-run\n  hint: `--out` writes elsewhere; or move it away";
        assert!(problem.ends_with(expected), "{problem}");
    }

    #[test]
    fn rewrites_an_outdated_or_torn_report() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name);
        let (page, torn) = (file("report.html"), file("report.html.partial"));
        for older in [false, true] {
            let before = MetricsBaseline::read(folder.path());
            let silent = Event::End(end(91, "rank 1 is silent"));
            MetricsWriter::open(&file("metrics.jsonl")).unwrap().write(&Stamped::now(&silent)).unwrap();
            std::fs::write(&torn, "<!doctype html>").unwrap();
            if older {
                let page = File::options().append(true).open(&page).unwrap();
                page.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
            assert_eq!(before.conclude(folder.path(), 91, "rank 1 is silent"), None);
            let html = std::fs::read_to_string(&page).unwrap();
            assert!(html.contains("rank 1 is silent (exit code 91)") && !torn.exists(), "{html}");
        }
        assert_eq!(ends(folder.path()).len(), 2);
    }
}
