//! The end of a run as its supervisor knows it, where rank 0 knew less or could not say it any more.

use super::events::{EndEvent, Event};
use super::{MetricsWriter, read_events, report};
use crate::error::Result;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A run's metrics as they were before it was started.
#[derive(Clone, Debug)]
pub struct Before {
    path: PathBuf,
    stamp: Option<(u64, SystemTime)>,
}

impl Before {
    pub fn of(run_dir: &Path) -> Self {
        let path = run_dir.join("metrics.jsonl");
        Self { stamp: stamp(&path), path }
    }

    /// Adds how the run ended, unless rank 0 said the same, and makes the report if it does not tell all of it. Rank 0 may be dead, or
    /// know only that it lost a peer, and it may have been killed between the last line and the report. A run that never came to its
    /// metrics leaves those of an earlier one as they are.
    pub fn conclude(&self, run_dir: &Path, code: u8, reason: &str) -> Result<()> {
        if stamp(&self.path) == self.stamp {
            return Ok(());
        }
        // Set aside, with nothing written since: only the end is to be told.
        let events = if self.path.exists() { read_events(&self.path)? } else { Vec::new() };
        let (mut end, mut told) =
            (EndEvent { step: 0, epoch: 0, reason: String::new(), exit_code: code, seconds: 0.0 }, None);
        for event in &events {
            told = None;
            match event {
                Event::Step(it) => (end.step, end.epoch) = (it.step, it.epoch),
                Event::Epoch(it) => (end.step, end.epoch) = (it.step, it.epoch + 1),
                Event::Checkpoint(it) => (end.step, end.epoch) = (it.step.max(end.step), it.epoch),
                Event::Resume(it) => (end.step, end.epoch) = (it.step, it.epoch),
                Event::Restart(_) => {}
                Event::End(it) => {
                    told = Some(it.exit_code);
                    (end.step, end.epoch, end.seconds) = (it.step, it.epoch, it.seconds);
                }
            }
        }
        let written = |path: &Path| stamp(path).map(|(_, written)| written);
        let mut lacks = written(&report::path(run_dir)) < written(&self.path);
        if told != Some(code) {
            lacks = true;
            reason.clone_into(&mut end.reason);
            MetricsWriter::open(&self.path)?.write(&Event::End(end))?;
        }
        if lacks { report::write(run_dir).map(drop) } else { Ok(()) }
    }
}

/// Length of the file and when it was last written to; `None` where there is none.
fn stamp(path: &Path) -> Option<(u64, SystemTime)> {
    let about = std::fs::metadata(path).ok()?;
    Some((about.len(), about.modified().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ResumeEvent;
    use std::fs::File;

    fn ends(folder: &Path) -> Vec<(u64, u8, String)> {
        let events = read_events(&folder.join("metrics.jsonl")).unwrap();
        let end = |e| if let Event::End(e) = e { Some((e.step, e.exit_code, e.reason)) } else { None };
        events.into_iter().filter_map(end).collect()
    }

    fn end(exit_code: u8, reason: &str) -> Event {
        Event::End(EndEvent { step: 7, epoch: 1, reason: reason.into(), exit_code, seconds: 2.0 })
    }

    #[test]
    fn the_end_is_the_supervisors_where_rank_0_knew_less() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let before = Before::of(folder.path());
        before.conclude(folder.path(), 78, "nothing began").unwrap();
        assert!(!path.exists());
        let write = |event: &Event| MetricsWriter::open(&path).unwrap().write(event).unwrap();
        write(&end(91, "rank 1 closed its connection"));
        before.conclude(folder.path(), 90, "rank 1 was killed").unwrap();
        let both =
            [(7, 91, "rank 1 closed its connection".to_owned()), (7, 90, "rank 1 was killed".to_owned())];
        assert_eq!(ends(folder.path()), both);
        let page = std::fs::read_to_string(folder.path().join("report.html")).unwrap();
        assert!(page.contains("rank 1 was killed (exit code 90)"), "{page}");
        // The same, or an attempt that wrote nothing: all is told.
        before.conclude(folder.path(), 90, "once more").unwrap();
        Before::of(folder.path()).conclude(folder.path(), 78, "a wrong start").unwrap();
        assert_eq!(ends(folder.path()), both);
        // A rank 0 that was killed while it wrote the report: of its own run, of the one before.
        let (page, torn) = (folder.path().join("report.html"), folder.path().join("report.html.partial"));
        for older in [false, true] {
            let before = Before::of(folder.path());
            write(&end(91, "rank 1 is silent"));
            std::fs::write(&torn, "<!doctype html>").unwrap();
            match older {
                true => File::options()
                    .append(true)
                    .open(&page)
                    .unwrap()
                    .set_modified(SystemTime::UNIX_EPOCH)
                    .unwrap(),
                false => std::fs::remove_file(&page).unwrap(),
            }
            before.conclude(folder.path(), 91, "rank 1 is silent").unwrap();
            let told = std::fs::read_to_string(&page).unwrap();
            assert!(told.contains("rank 1 is silent (exit code 91)") && !torn.exists(), "{told}");
        }
        assert_eq!(ends(folder.path()).len(), 4);
        // A rank 0 that was killed in the next attempt has said nothing of it.
        let before = Before::of(folder.path());
        let path = "checkpoints/step-9".to_owned();
        write(&Event::Resume(ResumeEvent {
            step: 9,
            epoch: 1,
            path,
            world: 1,
            global_batch: None,
            accumulate: None,
        }));
        before.conclude(folder.path(), 90, "rank 0 was killed").unwrap();
        assert_eq!(ends(folder.path()).last(), Some(&(9, 90, "rank 0 was killed".to_owned())));
    }
}
