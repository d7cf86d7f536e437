//! How a run came about: with which number of processes and which spec it trained which of its steps.

use crate::error::{IoContext, Result};
use crate::files;
use crate::history::spec_of;
use crate::telemetry::provenance::{Provenance, RunFile};
use crate::telemetry::{Event, ResumeEvent};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Steps that the same number of processes trained with the same spec. A resume with both unchanged changes no bits, so it begins no
/// other part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Part {
    /// Optimizer steps that were done before it.
    pub from: u64,
    pub world: usize,
    /// It begins at a checkpoint of a finished and measured epoch, not in the middle of one.
    pub at_epoch_end: bool,
    /// Its spec, as an index of [`History::specs`].
    #[serde(skip)]
    pub spec: usize,
}

/// The parts of a run, and what of its beginning is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// In the order of their steps; not empty.
    pub parts: Vec<Part>,
    /// The hashes of the specs that steps were trained with. The last part has that of the last start.
    pub specs: Vec<String>,
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
            spec: 0,
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
        history.split_by_specs(folder, &starts, events);
        history
    }

    fn resume(&mut self, resume: &ResumeEvent, at_epoch_end: bool) {
        // It went back behind what had been trained.
        let beginning = self.parts[0];
        self.parts.retain(|part| part.from < resume.step || *part == beginning);
        let part = Part { from: resume.step, world: resume.world, at_epoch_end, spec: 0 };
        let Some(last) = self.parts.last().copied() else { return };
        if last.from == resume.step {
            // The beginning itself was a resume, from another run.
            self.parts.pop();
        }
        if last.from == resume.step || last.world != resume.world {
            self.parts.push(part);
        }
    }

    /// A start with another spec begins a part. Where the folder has no spec of a start (those of early versions), it is taken to have had
    /// the last one.
    fn split_by_specs(&mut self, folder: &Path, starts: &[&Provenance], events: &[Event]) {
        let Some(last) = starts.last() else { return };
        let begun = self.parts[0].from;
        // By the step from which on it was trained.
        let mut trained: Vec<(u64, &str)> = Vec::new();
        for start in starts {
            let at = start.parent.as_ref().map_or(0, |at| at.step);
            let is_last = start.spec_hash == last.spec_hash;
            let known = is_last || spec_of(folder, &start.spec_hash).is_some_and(|spec| spec.is_file());
            if !known {
                self.unknown.push(format!(
                    "the start at step {at} ({}) had another spec, which is not recorded: its steps are repeated with the last one's",
                    start.started
                ));
            }
            let from = if trained.is_empty() { begun } else { at.max(begun) };
            trained.retain(|(step, _)| *step < from);
            trained.push((from, if known { &start.spec_hash } else { &last.spec_hash }));
        }
        trained.dedup_by(|next, before| next.1 == before.1);
        for (from, hash) in trained {
            let spec = self.number_of(hash);
            self.begin_spec(from, spec, was_measured(from, events));
        }
    }

    /// The index of a hash in `specs`.
    fn number_of(&mut self, hash: &str) -> usize {
        self.specs.iter().position(|known| known == hash).unwrap_or_else(|| {
            self.specs.push(hash.to_owned());
            self.specs.len() - 1
        })
    }

    /// From step `from` on, this spec was trained. `measured`: the part before ended by itself or with an epoch, and was evaluated.
    fn begin_spec(&mut self, from: u64, spec: usize, measured: bool) {
        let at = self.parts.partition_point(|part| part.from < from);
        let world = self.parts[at.saturating_sub(1)].world;
        match self.parts.get_mut(at).filter(|part| part.from == from) {
            Some(_) if at == 0 => {}
            Some(part) => part.at_epoch_end |= measured,
            None => self.parts.insert(at, Part { from, world, at_epoch_end: measured, spec }),
        }
        self.parts[at..].iter_mut().for_each(|part| part.spec = spec);
    }

    /// The texts of `specs`; `job_toml` is that of the last start.
    ///
    /// # Errors
    /// A file can't be read (74).
    pub fn spec_texts(&self, folder: &Path, job_toml: &str) -> Result<Vec<String>> {
        let last = self.parts.last().map(|part| part.spec);
        let text = |(at, hash): (usize, &String)| match spec_of(folder, hash).filter(|_| Some(at) != last) {
            Some(path) => files::read_text(&path).doing("read", &path),
            None => Ok(job_toml.to_owned()),
        };
        self.specs.iter().enumerate().map(text).collect()
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

/// Whether the epoch's event of step `step` came before the last resume from there.
fn was_measured(step: u64, events: &[Event]) -> bool {
    let resumed = events.iter().rposition(|event| matches!(event, Event::Resume(it) if it.step == step));
    let before = &events[..resumed.unwrap_or(0)];
    before.iter().any(|event| matches!(event, Event::Epoch(epoch) if epoch.step == step))
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
    fn another_spec_begins_a_part() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("specs")).unwrap();
        for hash in ["a", "b"] {
            std::fs::write(dir.path().join(format!("specs/{hash}.toml")), hash).unwrap();
        }
        let at = |step| Some(("checkpoints/step", step));
        let of = |starts: &[(&str, u64)], events: &[Event]| {
            let mut starts: Vec<Provenance> =
                starts.iter().map(|(hash, step)| start(2, hash, at(*step).filter(|_| *step > 0))).collect();
            let latest = starts.pop().unwrap();
            let all = History::of(dir.path(), &RunFile { latest, earlier: starts }, events);
            let parts: Vec<_> =
                all.parts.iter().map(|part| (part.from, all.specs[part.spec].clone())).collect();
            (parts, all)
        };
        let is = |found: &[(u64, String)], expected: &[(u64, &str)]| {
            let found: Vec<(u64, &str)> = found.iter().map(|(step, hash)| (*step, hash.as_str())).collect();
            assert_eq!(found, expected);
        };
        // The run ended with its first epoch, went on with "b" and one process less, and then with "a" again.
        let events = [epoch(0, 10), resume(10, 1, 2), resume(14, 1, 1), resume(16, 1, 1)];
        let (found, all) = of(&[("a", 0), ("b", 10), ("a", 16)], &events);
        is(&found, &[(0, "a"), (10, "b"), (14, "b"), (16, "a")]);
        assert_eq!(parts(&all), [(0, 2, false), (10, 2, true), (14, 1, false), (16, 1, false)]);
        // That of the last start is job.toml.
        assert_eq!(all.spec_texts(dir.path(), "job").unwrap(), ["job", "b"]);
        // A start that goes back takes the place of what it undoes.
        is(&of(&[("a", 0), ("b", 10), ("c", 4)], &[resume(4, 0, 2)]).0, &[(0, "a"), (4, "c")]);
        // The spec of one start is not there.
        let (found, all) = of(&[("a", 0), ("lost", 4), ("b", 8)], &[resume(4, 0, 2), resume(8, 0, 2)]);
        is(&found, &[(0, "a"), (4, "b")]);
        assert!(
            all.unknown.len() == 1 && all.unknown[0].contains("the start at step 4"),
            "{:?}",
            all.unknown
        );
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
