//! One of the two runs, as its folder has it.

use crate::checkpoint::{CheckpointStore, Entry};
use crate::error::{Error, IoContext, Result};
use crate::history::checkpoints;
use crate::plan::changes::{Values, values};
use crate::telemetry::{DigestLine, for_each_event, provenance, read_digests};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Side {
    pub folder: PathBuf,
    /// The resolved spec of its last start.
    pub job_toml: String,
    pub values: Values,
    /// By step.
    pub digests: BTreeMap<u64, DigestLine>,
    /// Oldest first.
    pub checkpoints: Vec<Entry>,
    /// The number of ranks of its last start.
    pub world: usize,
    /// The last step that anything in the folder tells of.
    pub last_step: u64,
    /// The checkpoint that the run began from, if it did not begin with the first step.
    pub began_from: Option<String>,
}

impl Side {
    /// # Errors
    /// A file that every run has can't be read (exit 74).
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join("job.toml");
        let job_toml = std::fs::read_to_string(&path).doing("read", &path)?;
        let values = values(&job_toml)
            .ok_or_else(|| Error::checkpoint(format!("cannot read {}: it is not TOML", path.display())))?;
        let starts = provenance::read(&folder.join("run.json"))?;
        let first = starts.earlier.first().unwrap_or(&starts.latest);
        let digests = read_digests(folder)?;
        let checkpoints = CheckpointStore::read_only(checkpoints(folder)).list()?;
        let mut last_step = 0;
        let metrics = folder.join("metrics.jsonl");
        if metrics.is_file() {
            for_each_event(&metrics, |event| last_step = last_step.max(event.step().unwrap_or(0)))?;
        }
        let saved = checkpoints.last().map_or(0, |entry| entry.step);
        let digested = digests.keys().next_back().copied().unwrap_or(0);
        Ok(Self {
            folder: folder.to_owned(),
            values,
            job_toml,
            world: starts.latest.world,
            last_step: last_step.max(saved).max(digested),
            began_from: first.parent.as_ref().map(|parent| parent.path.clone()),
            digests,
            checkpoints,
        })
    }

    /// Its checkpoint after `step` steps.
    pub fn checkpoint(&self, step: u64) -> Option<&Entry> {
        self.checkpoints.iter().find(|entry| entry.step == step)
    }
}
