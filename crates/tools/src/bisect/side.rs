//! One of the two runs, as its folder has it.

use crate::repro::{History, HistoryPart};
use base::error::{Error, IoContext, Result};
use base::files;
use checkpoint::{CheckpointStore, Entry};
use record::history::checkpoints;
use record::provenance;
use record::{Digests, Event, for_each_event};
use spec::{Values, values};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Side {
    pub folder: PathBuf,
    /// The resolved spec of its last start.
    pub job_toml: String,
    pub values: Values,
    pub digests: Digests,
    /// Oldest first; with that of another run from which this one began, if it is still there.
    pub checkpoints: Vec<Entry>,
    /// The number of ranks of its last start.
    pub world: usize,
    /// The last step that anything in the folder tells of.
    pub last_step: u64,
    /// Which steps were trained by how many ranks with which spec, and the checkpoint of another run from which it began.
    pub history: History,
}

/// Steps of a replay that are trained by the same number of ranks with the same spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leg {
    pub last: u64,
    pub world: usize,
    /// An index of the history's specs.
    pub spec: usize,
}

impl Side {
    /// # Errors
    /// A file that every run has can't be read (exit 74).
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("job.toml");
        let job_toml = files::read_text(&path).doing("read", &path)?;
        let values = values(&job_toml)
            .ok_or_else(|| Error::io(format!("cannot read {}: it is not TOML", path.display())))?;
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
        let history = History::new(folder, &starts, &events)?;
        if let (Some(path), Some(HistoryPart { from, .. })) = (&history.origin, history.parts.first())
            && path.is_dir()
            && checkpoints.iter().all(|entry| entry.step != *from)
        {
            checkpoints.push(Entry { step: *from, path: path.clone() });
            checkpoints.sort_by_key(|entry| entry.step);
        }
        Ok(Self {
            folder: folder.to_owned(),
            values,
            job_toml,
            world: starts.latest.world,
            last_step: last_step.max(saved).max(digested),
            history,
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
