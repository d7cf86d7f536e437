//! How a run came about: with which number of processes and which spec it trained which of its steps.

use super::specs::{Spec, Specs};
use base::error::Result;
use record::provenance::{Provenance, RunFile};
use record::{Event, ResumeEvent};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Steps that the same number of processes trained with the same spec. A resume with both unchanged changes no bits, so it begins no
/// other part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HistoryPart {
    /// Optimizer steps that were done before it.
    pub from: u64,
    /// Number of processes that trained it.
    pub world: usize,
    /// It begins at a checkpoint of a finished and measured epoch, not in the middle of one.
    pub at_epoch_end: bool,
    /// Its spec, as an index of [`History::specs`].
    #[serde(skip)]
    pub spec: usize,
}

/// Steps that can't be repeated as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// They come after this step.
    pub from: u64,
    /// The last one; `None` if it is the run's.
    pub to: Option<u64>,
    /// The reason, for the report.
    pub why: String,
}

/// The parts of a run, and what of its beginning is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// In the order of their steps; not empty.
    pub parts: Vec<HistoryPart>,
    /// Those that steps were trained with. The last part has that of the last start.
    pub specs: Vec<Spec>,
    /// The checkpoint of another run that this one began with.
    pub origin: Option<PathBuf>,
    /// Steps that can't be repeated as they were.
    pub unknown: Vec<Unknown>,
}

impl History {
    /// From `run.json`, the specs in `folder` and the events in `metrics.jsonl` of the run there.
    ///
    /// # Errors
    /// A spec can't be read (74), or is not TOML (78).
    pub fn new(folder: &Path, starts: &RunFile, events: &[Event]) -> Result<Self> {
        let starts = starts.since_beginning();
        let mut history = Self::default();
        let begun = starts[0].parent.as_ref();
        history.parts.push(HistoryPart {
            from: begun.map_or(0, |at| at.step),
            world: starts[0].world,
            at_epoch_end: false,
            spec: 0,
        });
        if let Some(parent) = begun {
            match is_own(folder, &parent.path) {
                true => history.unknown.push(Unknown {
                    from: 0,
                    to: Some(parent.step),
                    why: format!(
                        "run.json no longer has the beginning of the run, before step {}: it is repeated from the start with the number \
                         of processes that is known",
                        parent.step
                    ),
                }),
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
        history.split_by_specs(Specs::read(folder, &starts)?, &starts, events);
        Ok(history)
    }

    fn resume(&mut self, resume: &ResumeEvent, at_epoch_end: bool) {
        // It went back behind what had been trained.
        let beginning = self.parts[0];
        self.parts.retain(|part| part.from < resume.step || *part == beginning);
        let part = HistoryPart { from: resume.step, world: resume.world, at_epoch_end, spec: 0 };
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
    fn split_by_specs(&mut self, specs: Specs, starts: &[&Provenance], events: &[Event]) {
        let Some(last) = specs.of_starts.last().copied().flatten() else { return };
        let begun = self.parts[0].from;
        let mut before = None;
        for (at, (start, known)) in starts.iter().zip(&specs.of_starts).enumerate() {
            if known.is_none() {
                self.unknown.push(Unknown {
                    from: start.begins_at(),
                    to: starts.get(at + 1).map(|next| next.begins_at()),
                    why: format!(
                        "the start at step {} ({}) had another spec, which is not recorded: its steps are repeated with the last one's",
                        start.begins_at(),
                        start.started
                    ),
                });
            }
            let spec = known.unwrap_or(last);
            if before.replace(spec) != Some(spec) {
                let from = if at == 0 { begun } else { start.begins_at().max(begun) };
                self.begin_spec(from, spec, was_measured(from, events));
            }
        }
        self.specs = specs.all;
    }

    /// From step `from` on, this spec was trained. `measured`: the part before ended by itself or with an epoch, and was evaluated.
    fn begin_spec(&mut self, from: u64, spec: usize, measured: bool) {
        let at = self.parts.partition_point(|part| part.from < from);
        let world = self.parts[at.saturating_sub(1)].world;
        match self.parts.get_mut(at).filter(|part| part.from == from) {
            Some(_) if at == 0 => {}
            Some(part) => part.at_epoch_end |= measured,
            None => self.parts.insert(at, HistoryPart { from, world, at_epoch_end: measured, spec }),
        }
        self.parts[at..].iter_mut().for_each(|part| part.spec = spec);
    }

    /// The spec of the last start.
    pub fn last_spec(&self) -> &Spec {
        &self.specs[self.parts.last().map_or(0, |part| part.spec)]
    }

    /// What can't be repeated as it was, of the steps after step `first` up to step `last` or the end, a line each.
    pub fn unknown_of(&self, first: u64, last: Option<u64>) -> Vec<String> {
        let within =
            |it: &&Unknown| it.to.is_none_or(|to| first < to) && last.is_none_or(|last| it.from < last);
        self.unknown.iter().filter(within).map(|it| it.why.clone()).collect()
    }

    /// The numbers of processes that it had.
    pub fn worlds(&self) -> impl Iterator<Item = usize> {
        self.parts.iter().map(|part| part.world)
    }

    /// The parts that steps up to `last` belong to.
    pub fn up_to(&self, last: Option<u64>) -> &[HistoryPart] {
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
        Event::Epoch(epoch) if !epoch.cut => Some((epoch.completed(), epoch.step)),
        _ => None,
    }
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
