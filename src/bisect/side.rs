//! One of the two runs, as its folder has it.

use crate::checkpoint::{CheckpointStore, Entry};
use crate::error::{Error, IoContext, Result};
use crate::files;
use crate::history::checkpoints;
use crate::plan::changes::{Values, values};
use crate::repro::{History, Part};
use crate::telemetry::provenance::{self, RunFile};
use crate::telemetry::{Digests, Event, for_each_event};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Side {
    pub folder: PathBuf,
    /// The resolved spec of its last start.
    pub job_toml: String,
    /// Those that its steps were trained with, as `history.specs` has their hashes.
    pub specs: Vec<String>,
    pub values: Values,
    pub digests: Digests,
    /// Oldest first; with that of another run from which this one began, if it is still there.
    pub checkpoints: Vec<Entry>,
    /// The number of ranks of its last start.
    pub world: usize,
    /// The last step that anything in the folder tells of.
    pub last_step: u64,
    /// Which steps were trained by how many ranks, and the checkpoint of another run from which it began.
    pub history: History,
    /// The step from which on the spec of the last start was trained.
    pub spec_since: u64,
}

/// Steps of a replay that are trained by the same number of ranks with the same spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    pub last: u64,
    pub world: usize,
    /// An index of the side's specs.
    pub spec: usize,
}

impl Side {
    /// # Errors
    /// A file that every run has can't be read (exit 74).
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("job.toml");
        let job_toml = files::read_text(&path).doing("read", &path)?;
        let values = values(&job_toml)
            .ok_or_else(|| Error::checkpoint(format!("cannot read {}: it is not TOML", path.display())))?;
        let starts = provenance::read(&folder.join("run.json"))?;
        let digests = Digests::read(folder)?;
        let mut checkpoints = CheckpointStore::read_only(checkpoints(folder)).list()?;
        let (mut last_step, mut events) = (0, Vec::new());
        let metrics = folder.join("metrics.jsonl");
        if metrics.is_file() {
            for_each_event(&metrics, |event| {
                last_step = last_step.max(event.step().unwrap_or(0));
                if matches!(event, Event::Resume(_) | Event::Epoch(_)) {
                    events.push(event);
                }
            })?;
        }
        let saved = checkpoints.last().map_or(0, |entry| entry.step);
        let digested = digests.last_step().unwrap_or(0);
        let history = History::of(folder, &starts, &events);
        if let (Some(path), Some(Part { from, .. })) = (&history.origin, history.parts.first())
            && path.is_dir()
            && checkpoints.iter().all(|entry| entry.step != *from)
        {
            checkpoints.push(Entry { step: *from, path: path.clone() });
            checkpoints.sort_by_key(|entry| entry.step);
        }
        Ok(Self {
            folder: folder.to_owned(),
            values,
            specs: history.spec_texts(folder, &job_toml)?,
            job_toml,
            world: starts.latest.world,
            last_step: last_step.max(saved).max(digested),
            history,
            spec_since: spec_since(&starts),
            digests,
            checkpoints,
        })
    }

    /// The steps after step `first` up to step `last`, by the number of ranks and the spec that trained them.
    pub fn legs(&self, first: u64, last: u64) -> Vec<Leg> {
        let parts = &self.history.parts;
        let ends = parts.iter().skip(1).map(|next| next.from.min(last)).chain([last]);
        let mut legs: Vec<Leg> = Vec::new();
        for (part, end) in parts.iter().zip(ends) {
            if end > first && part.from < last {
                legs.push(Leg { last: end, world: part.world, spec: part.spec });
            }
        }
        legs
    }

    /// Its checkpoint after `step` steps.
    pub fn checkpoint(&self, step: u64) -> Option<&Entry> {
        self.checkpoints.iter().find(|entry| entry.step == step)
    }
}

/// From here on `job.toml` is the spec that was trained.
fn spec_since(starts: &RunFile) -> u64 {
    let all = [&starts.latest].into_iter().chain(starts.earlier.iter().rev());
    let same = all.take_while(|start| start.spec_hash == starts.latest.spec_hash);
    same.last().and_then(|first| first.parent.as_ref()).map_or(0, |parent| parent.step)
}
