//! How a run came about: with which number of processes it trained which of its steps.

use crate::telemetry::provenance::{Provenance, RunFile};
use crate::telemetry::{Event, ResumeEvent};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Steps that the same number of processes trained. A resume with as many changes no bits, so it begins no other part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// Optimizer steps that were done before it.
    pub from: u64,
    pub world: usize,
    /// It begins at a checkpoint of a finished and measured epoch, not in the middle of one.
    pub at_epoch_end: bool,
}

/// The parts of a run, and what of its beginning is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of their steps; not empty.
    pub parts: Vec<Part>,
    /// The checkpoint of another run that this one began with.
    pub origin: Option<PathBuf>,
    /// What can't be repeated as it was, a line each.
    pub unknown: Vec<String>,
}

impl History {
    /// From `run.json` and the events in `metrics.jsonl` of the run in `folder`.
    pub fn of(folder: &Path, starts: &RunFile, events: &[Event]) -> Self {
        let starts = starts.since_beginning();
        let mut history = Self::default();
        let begun = starts[0].parent.as_ref();
        history.parts.push(Part {
            from: begun.map_or(0, |at| at.step),
            world: starts[0].world,
            at_epoch_end: false,
        });
        if let Some(parent) = begun {
            match is_own(folder, &parent.path) {
                true => history.unknown.push(format!(
                    "run.json no longer has the beginning of the run, before step {}: it is repeated from the start with the number of \
                     processes that is known",
                    parent.step
                )),
                false => history.origin = Some(PathBuf::from(&parent.path)),
            }
            if history.origin.is_none() {
                history.parts[0].from = 0;
            }
        }
        let ends: BTreeSet<(u64, u64)> = events.iter().filter_map(epoch_end).collect();
        for event in events {
            if let Event::Resume(resume) = event {
                history.resume(resume, ends.contains(&(resume.epoch, resume.step)));
            }
        }
        history.note_other_specs(&starts);
        history
    }

    fn resume(&mut self, resume: &ResumeEvent, at_epoch_end: bool) {
        // It went back behind what had been trained.
        let beginning = self.parts[0];
        self.parts.retain(|part| part.from < resume.step || *part == beginning);
        let part = Part { from: resume.step, world: resume.world, at_epoch_end };
        let Some(last) = self.parts.last().copied() else { return };
        if last.from == resume.step {
            // The beginning itself was a resume, from another run.
            self.parts.pop();
        }
        if last.from == resume.step || last.world != resume.world {
            self.parts.push(part);
        }
    }

    /// Only the last start's spec is in the folder.
    fn note_other_specs(&mut self, starts: &[&Provenance]) {
        let Some(last) = starts.last() else { return };
        for start in starts.iter().filter(|start| start.spec_hash != last.spec_hash) {
            let at = start.parent.as_ref().map_or(0, |at| at.step);
            self.unknown.push(format!(
                "the start at step {at} ({}) had another spec, which is not recorded: its steps are repeated with the last one's",
                start.started
            ));
        }
    }

    /// The numbers of processes that it had.
    pub fn worlds(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.world)
    }

    /// The parts that steps up to `last` belong to.
    pub fn up_to(&self, last: Option<u64>) -> &[Part] {
        let count = last.map_or(self.parts.len(), |last| {
            self.parts.iter().take_while(|part| part.from < last).count().max(1)
        });
        &self.parts[..count]
    }
}

/// Whether a checkpoint's path in run.json, which is relative to the run's folder if it is in it, is in `folder`.
fn is_own(folder: &Path, path: &str) -> bool {
    path.starts_with("checkpoints/") || Path::new(path).starts_with(folder)
}

/// Completed epochs and steps at the end of an epoch.
fn epoch_end(event: &Event) -> Option<(u64, u64)> {
    match event {
        Event::Epoch(epoch) => Some((epoch.epoch + 1, epoch.step)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{EpochEvent, Metrics, provenance};

    fn start(world: usize, hash: &str, parent: Option<(&str, u64)>) -> Provenance {
        let parent =
            parent.map(|(path, step)| provenance::Parent { path: path.to_owned(), step, seconds: 1.0 });
        Provenance { world, spec_hash: hash.to_owned(), parent, ..provenance::sample(Path::new(".")) }
    }

    fn resume(step: u64, epoch: u64, world: usize) -> Event {
        let path = format!("checkpoints/step-{step:08}");
        Event::Resume(ResumeEvent { step, epoch, path, world, global_batch: 8, accumulate: 1 })
    }

    fn epoch(epoch: u64, step: u64) -> Event {
        let train = Metrics::new(0.5);
        let (seconds, lr, samples_per_s, data_wait) = (1.0, 0.1, 1.0, 0.0);
        Event::Epoch(EpochEvent { epoch, train, val: None, seconds, step, lr, samples_per_s, data_wait })
    }

    fn history(mut starts: Vec<Provenance>, events: &[Event]) -> History {
        let latest = starts.pop().unwrap();
        History::of(Path::new("runs/a"), &RunFile { latest, earlier: starts }, events)
    }

    fn parts(history: &History) -> Vec<(u64, usize, bool)> {
        history.parts.iter().map(|part| (part.from, part.world, part.at_epoch_end)).collect()
    }

    #[test]
    fn only_a_resize_begins_a_part() {
        let starts = vec![start(2, "a", None), start(1, "a", Some(("checkpoints/step-00000010", 10)))];
        let events = [epoch(0, 10), resume(4, 0, 2), resume(10, 1, 1), resume(12, 1, 1), resume(20, 1, 3)];
        let all = history(starts, &events);
        assert_eq!(parts(&all), [(0, 2, false), (10, 1, true), (20, 3, false)]);
        assert_eq!((all.origin.as_deref(), all.unknown.len()), (None, 0));
        let counts = [Some(3), Some(10), Some(11), Some(99), None].map(|last| all.up_to(last).len());
        assert_eq!(counts, [1, 1, 2, 3, 3]);
    }

    #[test]
    fn a_resume_that_goes_back_takes_the_place_of_what_it_undoes() {
        let events = [resume(10, 0, 1), resume(20, 0, 4), resume(10, 0, 3)];
        assert_eq!(parts(&history(vec![start(2, "a", None)], &events)), [(0, 2, false), (10, 3, false)]);
        let events = [resume(10, 0, 1), resume(8, 0, 2)];
        assert_eq!(parts(&history(vec![start(2, "a", None)], &events)), [(0, 2, false)]);
    }

    #[test]
    fn a_run_begins_with_its_last_start_over() {
        let starts = vec![start(4, "old", None), start(2, "a", None)];
        let all = history(starts, &[]);
        assert_eq!((parts(&all), all.unknown), (vec![(0, 2, false)], Vec::<String>::new()));
        let starts = vec![start(2, "old", None), start(2, "a", Some(("checkpoints/step-00000010", 10)))];
        let told = history(starts, &[resume(10, 0, 2)]).unknown;
        assert!(told.len() == 1 && told[0].contains("had another spec"), "{told:?}");
        // From another run.
        let all =
            history(vec![start(2, "a", Some(("runs/b/checkpoints/step-00000010", 10)))], &[resume(10, 1, 2)]);
        assert_eq!(parts(&all), [(10, 2, false)]);
        assert_eq!(all.origin.as_deref(), Some(Path::new("runs/b/checkpoints/step-00000010")));
        let all = history(vec![start(2, "a", Some(("checkpoints/step-00000010", 10)))], &[resume(10, 1, 2)]);
        assert_eq!((parts(&all), all.unknown.len()), (vec![(0, 2, false)], 1));
    }
}
