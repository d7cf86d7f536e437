//! What two folders tell without a replay: steps after which the runs are the same, and steps after which they are not.

use super::side::Side;
use base::error::{Error, Result};
use checkpoint::format::{EMA_FILE, MODEL_FILE, OPTIMIZER_FILE};
use checkpoint::{Entry, RunState, read_state};
use std::collections::BTreeMap;

/// By step: whether the runs are the same after it.
#[derive(Debug, Default)]
pub(super) struct Known {
    same: BTreeMap<u64, bool>,
    /// Both have digests of these.
    digested: Vec<u64>,
}

/// The steps among which the first one that differs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The last step that is known to be the same, if any.
    pub equal: Option<u64>,
    /// The last step that is looked at.
    pub last: u64,
    /// It is known to differ.
    pub differs: bool,
    /// Both have digests of it.
    pub digested: bool,
}

impl Window {
    /// Whether no step is between what is the same and what differs, and the tensors of that are known. All runs begin before step 1.
    pub fn is_exact(&self) -> bool {
        self.differs && self.digested && self.last == self.equal.unwrap_or(0) + 1
    }
}

impl Known {
    pub fn new([a, b]: &[Side; 2]) -> Self {
        let mut known = Self::default();
        for entry in &a.checkpoints {
            let saved = b.checkpoint(entry.step).and_then(|other| same_files(entry, other));
            known.same.extend(saved.map(|same| (entry.step, same)));
        }
        // Digests tell more: gradients and inputs too.
        for (step, same) in a.digests.in_common(&b.digests) {
            known.same.insert(step, same);
            known.digested.push(step);
        }
        known
    }

    /// The last step after which both are the same, before any difference.
    pub fn last_equal(&self) -> Option<u64> {
        let differs = self.first_difference().unwrap_or(u64::MAX);
        self.same.range(..differs).next_back().map(|(step, _)| *step)
    }

    fn first_difference(&self) -> Option<u64> {
        self.same.iter().find(|(_, same)| !**same).map(|(step, _)| *step)
    }

    /// Where the first difference is: before a step that is known to differ, or maybe up to step `until`. `None` if none is known of, and
    /// nothing after what is known is asked for.
    pub fn window(&self, until: Option<u64>) -> Option<Window> {
        let equal = self.last_equal();
        match self.first_difference() {
            Some(last) => {
                Some(Window { equal, last, differs: true, digested: self.digested.contains(&last) })
            }
            None => {
                let last = until.filter(|until| equal.is_none_or(|equal| *until > equal))?;
                Some(Window { equal, last, differs: false, digested: false })
            }
        }
    }

    /// The nearest checkpoint of either run at which both were the same, at most after step `equal`; `None` for the beginning.
    ///
    /// # Errors
    /// There is none, and a run did not begin with the first step (exit 2).
    pub fn common_checkpoint(&self, sides: &[Side; 2], equal: Option<u64>) -> Result<Option<Entry>> {
        let before = equal.map_or(0..=0, |equal| 0..=equal);
        let mut steps = self.same.range(before).rev().filter(|(_, same)| **same).map(|(step, _)| *step);
        let found = steps.find_map(|step| sides.iter().find_map(|side| side.checkpoint(step)));
        if found.is_some() {
            return Ok(found.cloned());
        }
        let origin = sides.iter().find_map(|side| Some((side, side.history.origin.as_ref()?)));
        let Some((side, from)) = origin else { return Ok(None) };
        let gone = if from.is_dir() { "" } else { ", which is gone" };
        let message = format!(
            "the runs have no checkpoint in common at which they are the same, and {} did not begin with the first step, but with {}{gone}: \
             there is nothing to replay both from",
            side.folder.display(),
            from.display()
        );
        Err(Error::usage(message).hint("`checkpoint.keep_last = 0` keeps all checkpoints of a run"))
    }
}

/// Whether the tensors of two checkpoints are the same, by the digests of their files; `None` if one can't be read.
fn same_files(a: &Entry, b: &Entry) -> Option<bool> {
    let [a, b] = [read_state(&a.path).ok()?, read_state(&b.path).ok()?];
    let file = |of: &RunState, name: &str| of.files.get(name).map(|file| file.sha256.clone());
    Some([MODEL_FILE, OPTIMIZER_FILE, EMA_FILE].into_iter().all(|name| file(&a, name) == file(&b, name)))
}

#[cfg(test)]
impl Known {
    pub fn with(same: &[(u64, bool)], digested: &[u64]) -> Self {
        Self { same: same.iter().copied().collect(), digested: digested.to_vec() }
    }
}
