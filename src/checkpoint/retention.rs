//! Retention: keeps the last few checkpoints and the best ones by a metric. The newest one is never removed.

use std::path::{Path, PathBuf};

use super::load::{Loaded, load, read_state};
use super::store::{CheckpointStore, Entry};
use super::{CheckpointConfig, RankBy, State};
use crate::error::{Error, IoContext, Result};

impl CheckpointStore {
    /// The best checkpoint by a metric.
    ///
    /// # Errors
    /// Exit code 74: none of them has the metric, or the best one can't be read.
    pub fn best(&self, by: RankBy) -> Result<Loaded> {
        let known = self.known()?;
        match rank(&known, by).first() {
            Some(best) => load(&best.path),
            None => Err(Error::checkpoint(format!(
                "no checkpoint in {} was measured by `{}`",
                self.dir().display(),
                by.name()
            ))
            .hint("`checkpoint.best` names the metric; the evaluation at the end of an epoch measures it")),
        }
    }

    /// The checkpoints whose `state.json` verifies.
    fn known(&self) -> Result<Vec<(Entry, State)>> {
        let with_state = |entry: Entry| read_state(&entry.path).ok().map(|state| (entry, state));
        Ok(self.list()?.into_iter().filter_map(with_state).collect())
    }

    /// Removes the checkpoints that neither `keep_last` nor `keep_best` keeps and returns their paths. A checkpoint
    /// whose `state.json` does not verify is neither counted nor removed, because it may be the only remaining copy.
    pub fn retain(&self, config: &CheckpointConfig) -> Result<Vec<PathBuf>> {
        if config.keep_last == 0 {
            return Ok(Vec::new());
        }
        let lock = self.lock()?;
        let known = self.known()?;
        let mut keep: Vec<u64> = known.iter().rev().take(config.keep_last).map(|(e, _)| e.step).collect();
        keep.extend(rank(&known, config.best).iter().take(config.keep_best.unwrap_or(0)).map(|e| e.step));
        let mut removed = Vec::new();
        for (entry, _) in known.iter().filter(|(e, _)| !keep.contains(&e.step)) {
            self.remove(&entry.path, &lock).doing("remove the old checkpoint", &entry.path)?;
            removed.push(entry.path.clone());
        }
        Ok(removed)
    }
}

impl CheckpointStore {
    /// The path of the best checkpoint by a metric; without one that has it, of the newest whose `state.json` verifies.
    pub fn best_or_newest(&self, by: Option<RankBy>) -> Result<Option<PathBuf>> {
        let known = self.known()?;
        let best = by.and_then(|by| rank(&known, by).first().map(|entry| entry.path.clone()));
        Ok(best.or_else(|| known.last().map(|(entry, _)| entry.path.clone())))
    }

    /// Removes all checkpoints but the one at `kept`.
    ///
    /// # Errors
    /// Exit code 74: a checkpoint can't be removed, or another process writes to the folder.
    pub fn remove_all_but(&self, kept: &Path) -> Result<()> {
        let lock = self.lock()?;
        for entry in self.list()?.iter().filter(|entry| entry.path != kept) {
            self.remove(&entry.path, &lock).doing("remove the checkpoint", &entry.path)?;
        }
        Ok(())
    }
}

/// The checkpoints that have the metric, best first. Of equal ones the earlier comes first: it needed less training.
fn rank(known: &[(Entry, State)], by: RankBy) -> Vec<&Entry> {
    let mut ranked: Vec<(f64, &Entry)> =
        known.iter().filter_map(|(e, state)| Some((state.metric(by.name())?, e))).collect();
    ranked.sort_by(|(a, _), (b, _)| if by.prefers_larger() { b.total_cmp(a) } else { a.total_cmp(b) });
    ranked.into_iter().map(|(_, e)| e).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::StandardMetric::{self, ValAccuracy, ValLoss};
    use crate::checkpoint::testing::{snapshot, steps};
    use serde_json::json;

    /// Checkpoints 0, 1, … whose accuracy and loss are these numbers.
    fn filled(metrics: &[Option<f64>]) -> (tempfile::TempDir, CheckpointStore) {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path()).unwrap();
        for (step, metric) in metrics.iter().enumerate() {
            let metrics = metric.map_or(json!({}), |m| json!({ "val": { "accuracy": m, "loss": m } }));
            let mut snapshot = snapshot(step as u64, 0);
            snapshot.state.metrics = metrics;
            store.save(&snapshot).unwrap();
        }
        (dir, store)
    }

    fn keep(last: usize, best: StandardMetric, count: usize) -> CheckpointConfig {
        let best = RankBy::Standard(best);
        CheckpointConfig { keep_last: last, best, keep_best: Some(count), ..CheckpointConfig::default() }
    }

    #[test]
    fn retains_the_last_and_the_best() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8), None, Some(0.2), Some(0.3)]);
        let removed = store.retain(&keep(2, ValAccuracy, 2)).unwrap();
        assert_eq!(steps(&store), [1, 2, 4, 5]);
        assert_eq!(removed, [store.dir().join("step-00000000"), store.dir().join("step-00000003")]);
        store.retain(&keep(1, ValLoss, 1)).unwrap();
        assert_eq!(steps(&store), [4, 5]);
        store.retain(&keep(1, ValLoss, 0)).unwrap();
        assert_eq!(steps(&store), [5]);
    }

    #[test]
    fn all_but_the_best_are_removed() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8), None]);
        let best = |by| store.best_or_newest(by).unwrap().unwrap();
        assert!(best(Some(RankBy::Standard(ValLoss))).ends_with("step-00000000"));
        assert!(best(Some(RankBy::own("val.dice", true))).ends_with("step-00000003"), "nothing measures it");
        assert!(best(None).ends_with("step-00000003"));
        store.remove_all_but(&best(Some(RankBy::Standard(ValAccuracy)))).unwrap();
        assert_eq!(steps(&store), [1]);
    }

    #[test]
    fn keeps_all_if_keep_last_is_0() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8)]);
        assert_eq!(store.retain(&keep(0, ValAccuracy, 1)).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(steps(&store), [0, 1, 2]);
    }

    #[test]
    fn the_earlier_of_equal_checkpoints_is_best() {
        let (_dir, store) = filled(&[Some(0.5), Some(0.5), None]);
        store.retain(&keep(1, ValAccuracy, 1)).unwrap();
        assert_eq!(steps(&store), [0, 2]);
    }

    #[test]
    fn an_unreadable_checkpoint_is_neither_counted_nor_removed() {
        let (_dir, store) = filled(&[None, None, None]);
        std::fs::write(store.dir().join("step-00000002/state.json"), "{}").unwrap();
        store.retain(&keep(1, ValLoss, 0)).unwrap();
        assert_eq!(steps(&store), [1, 2]);
    }
}
