//! Retention: keeps the last few checkpoints and the best ones by a metric. The newest one is never removed.

use std::path::{Path, PathBuf};

use super::format::{Rejected, step_dir_name};
use super::load::{Loaded, load, read_state, verify};
use super::store::{CheckpointStore, Entry};
use super::{CheckpointConfig, RankBy, RunState};
use crate::Score;
use base::error::{Error, IoContext, Result};

impl CheckpointStore {
    /// The best checkpoint by a metric.
    ///
    /// # Errors
    /// `ErrorKind::Io`: none of them has the metric, or the best one can't be read.
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

    /// How good the best checkpoint up to `step` is by a metric; `None` if none has it.
    ///
    /// # Errors
    /// `ErrorKind::Io`: the checkpoints can't be listed.
    pub fn best_score(&self, by: RankBy, step: u64) -> Result<Option<Score>> {
        let known = self.known()?.into_iter().filter(|(entry, _)| entry.step <= step);
        let scores = known.filter_map(|(_, state)| score(&state, by));
        Ok(scores.reduce(|best, next| if next.beats(best) { next } else { best }))
    }

    /// The checkpoints whose `state.json` verifies.
    fn known(&self) -> Result<Vec<(Entry, RunState)>> {
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
    /// The best checkpoint by a metric; without one that has it, the newest. All its files verify: damaged ones don't count.
    ///
    /// # Errors
    /// `ErrorKind::Io`: one that may be the best is out of reach at present.
    pub fn best_or_newest(&self, by: Option<RankBy>) -> Result<Option<Entry>> {
        let mut known = Vec::new();
        for entry in self.list()? {
            if let Some(state) = intact(&entry, read_state)? {
                known.push((entry, state));
            }
        }
        let ranked = by.map(|by| rank(&known, by)).unwrap_or_default();
        for entry in ranked.into_iter().chain(known.iter().rev().map(|(entry, _)| entry)) {
            if intact(entry, verify)?.is_some() {
                return Ok(Some(entry.clone()));
            }
        }
        Ok(None)
    }

    /// Removes all checkpoints but the one of `step`, which is [`Self::best_or_newest`].
    ///
    /// # Errors
    /// `ErrorKind::Io`: another one is that now, and nothing was removed; a checkpoint can't be
    /// removed, or another process writes to the folder.
    pub fn keep_best(&self, by: Option<RankBy>, step: u64) -> Result<()> {
        let lock = self.lock()?;
        if self.best_or_newest(by)?.is_none_or(|best| best.step != step) {
            let what = format!(
                "{} is not the best checkpoint of {} any more; nothing was removed",
                step_dir_name(step),
                self.dir().display()
            );
            return Err(Error::checkpoint(what).hint("the same command finds out which one is"));
        }
        for entry in self.list()?.iter().filter(|entry| entry.step != step) {
            self.remove(&entry.path, &lock).doing("remove the checkpoint", &entry.path)?;
        }
        Ok(())
    }
}

/// The state that `read` verifies; `None` if the checkpoint is damaged.
fn intact(entry: &Entry, read: impl FnOnce(&Path) -> Result<RunState, Rejected>) -> Result<Option<RunState>> {
    match read(&entry.path) {
        Ok(state) => Ok((state.global_step == entry.step).then_some(state)),
        Err(why) if why.is_transient() => Err(why.into_error(&entry.path)),
        Err(_) => Ok(None),
    }
}

fn score(state: &RunState, by: RankBy) -> Option<Score> {
    Score::new(state.metric(by.name())?, by.prefers_larger(), state.metric("val.loss"))
}

/// The checkpoints that have the metric, best first; of equal ones the later first.
fn rank(known: &[(Entry, RunState)], by: RankBy) -> Vec<&Entry> {
    let mut ranked: Vec<(Score, &Entry)> =
        known.iter().filter_map(|(e, state)| Some((score(state, by)?, e))).collect();
    ranked.sort_by(|(a, of_a), (b, of_b)| a.order(*b).then(of_b.step.cmp(&of_a.step)));
    ranked.into_iter().map(|(_, e)| e).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StandardMetric::{self, ValAccuracy, ValLoss};
    use crate::store::OLD_PREFIX;
    use crate::testing::{snapshot, steps};
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
    fn of_equal_ones_the_lower_loss_and_then_the_later_is_the_best() {
        let dir = tempfile::tempdir().unwrap();
        let store = CheckpointStore::open(dir.path()).unwrap();
        for (step, loss) in (0..).zip([0.5, 0.25, 0.25, 0.75]) {
            let mut snapshot = snapshot(step, 0);
            snapshot.state.metrics = json!({ "val": { "accuracy": 0.5, "loss": loss } });
            store.save(&snapshot).unwrap();
        }
        let by = RankBy::Standard(ValAccuracy);
        let best = Score::new(0.5, true, Some(0.25));
        assert_eq!(
            (store.best_score(by, 9).unwrap(), store.best_score(by, 0).unwrap() == best),
            (best, false)
        );
        assert_eq!(store.best(by).unwrap().state.global_step, 2);
        store.retain(&keep(1, ValAccuracy, 2)).unwrap();
        assert_eq!(steps(&store), [1, 2, 3]);
    }

    #[test]
    fn all_but_the_best_are_removed() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8), None]);
        let best = |by| store.best_or_newest(by).unwrap().unwrap().step;
        let accuracy = Some(RankBy::Standard(ValAccuracy));
        assert_eq!(best(Some(RankBy::Standard(ValLoss))), 0);
        assert_eq!(best(Some(RankBy::own("val.dice", true))), 3, "nothing measures it");
        assert_eq!((best(None), best(accuracy)), (3, 1));
        // It was chosen, and then a better one was saved, or it was removed.
        let error = store.keep_best(accuracy, 2).unwrap_err();
        assert!(
            error.message.contains("step-00000002 is not the best") && steps(&store).len() == 4,
            "{error}"
        );
        store.keep_best(accuracy, 1).unwrap();
        assert_eq!(steps(&store), [1]);
    }

    #[test]
    fn the_best_is_one_that_can_be_loaded() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8), None]);
        let damage = |step: u64| {
            let path = store.dir().join(step_dir_name(step)).join("model.safetensors");
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(path, bytes).unwrap();
        };
        let best = || store.best_or_newest(Some(RankBy::Standard(ValAccuracy))).unwrap().map(|it| it.step);
        damage(1);
        assert_eq!(best(), Some(2));
        damage(2);
        // A copy under another name is no checkpoint of that step.
        let [from, to] = [3, 0].map(|step| store.dir().join(step_dir_name(step)));
        for name in ["state.json", "model.safetensors", "optimizer.safetensors"] {
            std::fs::copy(from.join(name), to.join(name)).unwrap();
        }
        assert_eq!(best(), Some(3), "none that was measured is intact");
        damage(3);
        assert_eq!(best(), None);
    }

    /// Where two names can't be exchanged, a process may have died when it had set one aside, under another name.
    #[test]
    fn the_best_may_have_been_set_aside() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8)]);
        let name = step_dir_name(1);
        std::fs::rename(store.dir().join(&name), store.dir().join(format!("{OLD_PREFIX}{name}"))).unwrap();
        let by = Some(RankBy::Standard(ValAccuracy));
        let best = CheckpointStore::read_only(store.dir()).best_or_newest(by).unwrap().unwrap();
        CheckpointStore::open(store.dir()).unwrap().keep_best(by, best.step).unwrap();
        assert_eq!(steps(&store), [1]);
    }

    #[test]
    fn keeps_all_if_keep_last_is_0() {
        let (_dir, store) = filled(&[Some(0.1), Some(0.9), Some(0.8)]);
        assert_eq!(store.retain(&keep(0, ValAccuracy, 1)).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(steps(&store), [0, 1, 2]);
    }

    #[test]
    fn the_later_of_equal_checkpoints_is_best() {
        let (_dir, store) = filled(&[Some(0.5), Some(0.5), None]);
        store.retain(&keep(1, ValAccuracy, 1)).unwrap();
        assert_eq!(steps(&store), [1, 2]);
    }

    #[test]
    fn an_unreadable_checkpoint_is_neither_counted_nor_removed() {
        let (_dir, store) = filled(&[None, None, None]);
        std::fs::write(store.dir().join("step-00000002/state.json"), "{}").unwrap();
        store.retain(&keep(1, ValLoss, 0)).unwrap();
        assert_eq!(steps(&store), [1, 2]);
    }
}
