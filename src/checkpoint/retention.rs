//! Retention: keeps the last few checkpoints and the best ones by a metric. The newest and the best one are never removed.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::load::read_state;
use super::store::{CheckpointStore, Entry};
use crate::error::{IoContext, Result};

/// What [`CheckpointStore::retain`] keeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Number of newest checkpoints to keep (at least one); `None` keeps all.
    pub keep_last: Option<usize>,
    /// The best ones to keep in addition.
    pub best: Option<BestBy>,
}

/// How checkpoints are ranked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestBy {
    /// Dotted path in [`State::metrics`](super::State), such as `val.accuracy`. Checkpoints without it are not ranked.
    pub metric: String,
    pub direction: Direction,
    /// Number of best checkpoints to keep (at least one).
    pub keep: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Min,
    Max,
}

impl CheckpointStore {
    /// Removes the checkpoints that `policy` does not keep and returns their paths. A checkpoint whose `state.json`
    /// does not verify is neither counted nor removed, because it may be the only remaining copy.
    pub fn retain(&self, policy: &Retention) -> Result<Vec<PathBuf>> {
        let Some(keep_last) = policy.keep_last else { return Ok(Vec::new()) };
        let lock = self.lock()?;
        let known = self.readable()?;
        let mut keep: Vec<u64> = known.iter().rev().take(keep_last.max(1)).map(|(e, _)| e.step).collect();
        if let Some(by) = &policy.best {
            keep.extend(rank(&known, by).iter().take(by.keep.max(1)).map(|e| e.step));
        }
        let mut removed = Vec::new();
        for (entry, _) in known.iter().filter(|(e, _)| !keep.contains(&e.step)) {
            self.remove(&entry.path, &lock).doing("remove the old checkpoint", &entry.path)?;
            removed.push(entry.path.clone());
        }
        Ok(removed)
    }

    /// The best checkpoint, if any has the metric.
    #[cfg(test)]
    fn best(&self, by: &BestBy) -> Result<Option<PathBuf>> {
        Ok(rank(&self.readable()?, by).first().map(|e| e.path.clone()))
    }

    fn readable(&self) -> Result<Vec<(Entry, super::State)>> {
        let entries = self.list()?.into_iter();
        Ok(entries.filter_map(|e| read_state(&e.path).ok().map(|state| (e, state))).collect())
    }
}

/// Best first. Of equal ones the earlier comes first: it needed less training.
fn rank<'a>(known: &'a [(Entry, super::State)], by: &BestBy) -> Vec<&'a Entry> {
    let mut ranked: Vec<(f64, &Entry)> =
        known.iter().filter_map(|(e, state)| Some((state.metric(&by.metric)?, e))).collect();
    ranked.sort_by(|(a, _), (b, _)| match by.direction {
        Direction::Min => a.total_cmp(b),
        Direction::Max => b.total_cmp(a),
    });
    ranked.into_iter().map(|(_, e)| e).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::testing::{snapshot, steps};
    use serde_json::json;

    fn filled(accuracies: &[Option<f64>]) -> (tempfile::TempDir, CheckpointStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path()).unwrap();
        for (step, accuracy) in accuracies.iter().enumerate() {
            let metrics = accuracy.map_or(json!({}), |a| json!({ "val": { "accuracy": a } }));
            let mut snapshot = snapshot(step as u64, 0);
            snapshot.state.metrics = metrics;
            store.save(&snapshot).unwrap();
        }
        (dir, store)
    }

    fn best(direction: Direction, keep: usize) -> Option<BestBy> {
        Some(BestBy { metric: "val.accuracy".into(), direction, keep })
    }

    #[test]
    fn retains_the_last_and_the_best() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8), None, Some(0.2), Some(0.3)]);
        assert_eq!(
            store.best(&best(Direction::Max, 1).unwrap()).unwrap().unwrap(),
            store.dir().join("step-00000001")
        );
        let removed = store.retain(&Retention { keep_last: Some(2), best: best(Direction::Max, 2) }).unwrap();
        assert_eq!(steps(&store), [1, 2, 4, 5]);
        assert_eq!(removed, [store.dir().join("step-00000000"), store.dir().join("step-00000003")]);
        store.retain(&Retention { keep_last: Some(1), best: best(Direction::Min, 1) }).unwrap();
        assert_eq!(steps(&store), [4, 5]);
    }

    #[test]
    fn never_removes_the_newest_and_the_best() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8)]);
        store.retain(&Retention { keep_last: Some(0), best: best(Direction::Max, 0) }).unwrap();
        assert_eq!(steps(&store), [1, 2]);
        assert_eq!(store.retain(&Retention::default()).unwrap(), Vec::<PathBuf>::new());
    }

    #[test]
    fn the_earlier_of_equal_checkpoints_is_best() {
        let (_dir, store) = filled(&[Some(0.5), Some(0.5)]);
        let found = store.best(&best(Direction::Max, 1).unwrap()).unwrap().unwrap();
        assert!(found.ends_with("step-00000000"));
    }

    #[test]
    fn an_unreadable_checkpoint_is_neither_counted_nor_removed() {
        let (_dir, store) = filled(&[None, None, None]);
        std::fs::write(store.dir().join("step-00000002/state.json"), "{}").unwrap();
        store.retain(&Retention { keep_last: Some(1), best: None }).unwrap();
        assert_eq!(steps(&store), [1, 2]);
    }
}
