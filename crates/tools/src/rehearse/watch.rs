//! What can be seen of a run from outside while a fault happens: its metrics, the log of the rank that fails, and its processes.

use super::trial::resumed_at;
use crate::repro::{Outcomes, children};
use base::error::Result;
use record::{Event, read_events};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The course of a run, up to the first step after its fault. Times are those since its start.
#[derive(Clone, Debug)]
pub struct Course {
    metrics: PathBuf,
    log: PathBuf,
    /// The last step that was seen.
    last_step: u64,
    /// When the fault happened, and how many steps were done then.
    pub struck: Option<(Duration, u64)>,
    /// When a step followed that was not done before.
    pub recovered: Option<Duration>,
}

impl Course {
    /// Of a run in `out`, of which `rank` fails.
    pub fn new(out: &Path, rank: usize) -> Self {
        Self {
            metrics: out.join("metrics.jsonl"),
            log: out.join(format!("logs/rank-{rank}.log")),
            last_step: 0,
            struck: None,
            recovered: None,
        }
    }

    /// Looks at the files, `age` after the start.
    pub fn look(&mut self, age: Duration) {
        if self.struck.is_none() {
            let log = base::files::read(&self.log).unwrap_or_default();
            self.struck = struck_step(&String::from_utf8_lossy(&log)).map(|step| (age, step));
        } else if self.recovered.is_some() {
            return;
        }
        // A restart replaces the file while it is looked for. It is read once, so that its steps are those of before or after that.
        let lines = base::files::read(&self.metrics).unwrap_or_default();
        let last = Outcomes::of_lines(&lines).last_step().unwrap_or(0);
        if has_restart(&lines) {
            if last > self.reached() && self.recovered.is_none() {
                self.recovered = Some(age);
            }
        } else {
            self.last_step = self.last_step.max(last);
        }
    }

    /// The steps that were done when the run noticed the fault: the others may have finished a step without the rank that failed.
    pub fn reached(&self) -> u64 {
        self.last_step.max(self.struck.map_or(0, |(_, step)| step))
    }

    /// The fault is one from outside, and happens now.
    pub fn strikes_now(&mut self, age: Duration) {
        let step = self.struck.map_or(self.last_step, |(_, step)| step);
        (self.struck, self.recovered) = (Some((age, step)), None);
    }

    /// The step from which a run that is done was restarted, the last time; `None` if nothing was restarted.
    pub fn restarts_from(&self, out: &Path) -> Result<Option<u64>> {
        let events = read_events(&out.join("metrics.jsonl"))?;
        let restarted = events.iter().any(|event| matches!(event, Event::Restart(_)));
        if !restarted { Ok(None) } else { Ok(Some(resumed_at(out)?.unwrap_or(0))) }
    }
}

/// Whether a supervisor has restarted the workers, by the lines of metrics.jsonl.
fn has_restart(lines: &[u8]) -> bool {
    let of_restart = br#"{"event":"restart""#;
    lines.split(|byte| *byte == b'\n').any(|line| line.starts_with(of_restart))
}

/// How many steps were done when a rank failed on purpose, by its log; 0 before the rendezvous.
fn struck_step(log: &str) -> Option<u64> {
    let line = log.lines().find(|line| line.contains(" on purpose, "))?;
    let (_, place) = line.split_once(" on purpose, ")?;
    let step = place.strip_prefix("step ").and_then(|rest| rest.split(',').next()?.trim().parse().ok());
    Some(step.unwrap_or(0))
}

/// A child of `supervisor` that is stopped (SIGSTOP).
pub fn held_worker(supervisor: u32) -> Option<u32> {
    children(supervisor).into_iter().find(|(_, state)| *state == 'T').map(|(pid, _)| pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_log_of_a_rank_says_when_it_failed() {
        let log = "2026-11-23T21:00:00Z  INFO rank 1 of 2 is ready\n\
            2026-11-23T21:00:01Z  WARN ddp_run_job::worker::fault: DDP_RUN_FAULT: Kill on purpose, step 3, phase forward\n";
        assert_eq!(struck_step(log), Some(3));
        assert_eq!(struck_step(&log.replace("step 3, phase forward", "before the rendezvous")), Some(0));
        assert_eq!(struck_step(log.lines().next().unwrap()), None);
    }

    #[test]
    fn a_run_has_recovered_with_its_first_new_step() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("logs")).unwrap();
        let mut course = Course::new(dir.path(), 1);
        let step = |step: &u64| format!("{{\"event\":\"step\",\"step\":{step},\"epoch\":0,\"loss\":0.5}}\n");
        let restart = "{\"event\":\"restart\",\"attempt\":2,\"reason\":\"x\"}\n";
        let lines = |before: &[u64], more: &str| {
            let before: String = before.iter().map(step).collect();
            fs::write(dir.path().join("metrics.jsonl"), before + more).unwrap();
        };
        let at = Duration::from_secs;
        course.look(at(0));
        lines(&[1, 2, 3], "");
        course.look(at(1));
        assert_eq!((course.struck, course.recovered), (None, None));
        fs::write(dir.path().join("logs/rank-1.log"), "x: Kill on purpose, step 3, phase data\n").unwrap();
        course.look(at(2));
        // Another rank finishes the step in which this one failed: nobody has missed it yet.
        lines(&[1, 2, 3, 4], "");
        course.look(at(3));
        assert_eq!((course.struck, course.recovered, course.reached()), (Some((at(2), 3)), None, 4));
        // The restart takes back what was not saved.
        lines(&[1, 2], restart);
        course.look(at(4));
        lines(&[1, 2], &[restart, &step(&3), &step(&4)].concat());
        course.look(at(5));
        assert_eq!((course.struck, course.recovered), (Some((at(2), 3)), None));
        lines(&[1, 2], &[restart, &step(&3), &step(&4), &step(&5)].concat());
        course.look(at(6));
        assert_eq!((course.recovered, course.reached()), (Some(at(6)), 4));
    }
}
