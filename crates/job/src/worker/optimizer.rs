//! Compares a checkpoint's optimizer with the spec's. Its arrays belong to the algorithm: one with other arrays would
//! continue as if it had made all steps so far, so it is rejected. Other changes are applied, and reported with those
//! of the spec. A parameter that is no longer frozen begins with new arrays and a separate count of updates.

use super::spec_changes::{self, OwnSpec};
use base::error::{Error, Result};
use checkpoint::{Loaded, RunState};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use train::models::{Model, Role, StateEntry, TensorFacts};
use train::optim::OptimizerPlan;
use train::training::Updater;

/// Which parameters a run trains, for its checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trained {
    /// Parameters that are not trained: they have no optimizer state.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    frozen: BTreeSet<String>,
    /// Parameters that were frozen at first, with the number of updates of the run before their own first one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    since: BTreeMap<String, u64>,
}

impl Trained {
    pub fn new(entries: &[StateEntry], updater: &Updater) -> Self {
        let named = |role| move |e: &&StateEntry| e.role == role;
        let frozen = entries.iter().filter(named(Role::Frozen)).map(|e| e.name.clone()).collect();
        let since = entries.iter().zip(updater.since()).filter(|(_, since)| **since > 0);
        Self { frozen, since: since.map(|(e, since)| (e.name.clone(), *since)).collect() }
    }

    /// Whether every parameter has been trained from the start.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this parameter, which is trained now, was not.
    pub fn thaws(&self, entry: &StateEntry) -> bool {
        entry.trainable() && entry.names().any(|e| self.frozen.contains(&e.name))
    }

    /// Updates of the run before the first one of this parameter, given those of the whole run so far.
    pub fn since(&self, entry: &StateEntry, updates: u64) -> u64 {
        if self.thaws(entry) { updates } else { self.since.get(&entry.name).copied().unwrap_or(0) }
    }

    /// Messages about what the groups freeze now, and what is no longer frozen. (What the model itself freezes may come from a
    /// checkpoint that does not record it.)
    pub fn changes(&self, optimizer: &OptimizerPlan, entries: &[StateEntry]) -> [Option<String>; 2] {
        let thawed: Vec<&str> = entries.iter().filter(|e| self.thaws(e)).map(|e| e.name.as_str()).collect();
        let frozen = |e: &&StateEntry| {
            let by_group = optimizer.rule_of(e.names().map(|e| e.name.as_str())).is_none();
            by_group && e.role == Role::Frozen && !e.names().any(|e| self.frozen.contains(&e.name))
        };
        let frozen: Vec<&str> = entries.iter().filter(frozen).map(|e| e.name.as_str()).collect();
        [
            listed(&frozen, "frozen from here on, without optimizer state"),
            listed(&thawed, "trained from here on, with new optimizer state"),
        ]
    }
}

/// Maximum number of parameters in a message.
const NAMED: usize = 4;

/// `3 parameters are WHAT: a, b, c`.
fn listed(names: &[&str], what: &str) -> Option<String> {
    let (more, count) = (names.len().saturating_sub(NAMED), names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let are = if count == 1 { "parameter is" } else { "parameters are" };
    let named = names[..count.min(NAMED)].join(", ");
    (count > 0).then(|| format!("{count} {are} {what}: {named}{more}"))
}

/// Freezes the parameters of the groups with `frozen`.
///
/// # Errors
/// Exit code 78: a group does not fit the model.
pub fn freeze(optimizer: &OptimizerPlan, model: &mut dyn Model) -> Result<()> {
    let tensors: Vec<TensorFacts> = model.entries().iter().map(TensorFacts::from_entry).collect();
    groups(optimizer, &tensors)?;
    let frozen: Vec<bool> = tensors.iter().map(|t| optimizer.rule_of(t.names()).is_none()).collect();
    if frozen.contains(&true) {
        model.freeze(&|index| frozen[index]);
    }
    Ok(())
}

/// # Errors
/// Exit code 78: a group does not fit the model.
pub fn groups(optimizer: &OptimizerPlan, tensors: &[TensorFacts]) -> Result<()> {
    match optimizer.misfits(tensors).into_iter().next() {
        Some(misfit) => Err(Error::spec(format!("{}: {}", misfit.path.join("."), misfit.message))),
        None => Ok(()),
    }
}

/// # Errors
/// Exit code 74: the checkpoint's optimizer has other arrays than the spec's.
pub fn fits(
    spec: OwnSpec<'_>,
    loaded: &Loaded,
    trained: &Trained,
    entries: &[StateEntry],
    updater: &Updater,
) -> Result<()> {
    let mut saved: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (slot, name) in loaded.optimizer.iter().filter_map(|t| t.name.split_once('.')) {
        saved.entry(name).or_default().insert(slot);
    }
    let (mut found, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    for (index, entry) in entries.iter().enumerate().filter(|(_, e)| e.trainable() && !trained.thaws(e)) {
        let own = saved.remove(entry.name.as_str()).unwrap_or_default();
        let needed: BTreeSet<&str> = updater.slots(index).iter().copied().collect();
        if own != needed {
            found.extend(own);
            wanted.extend(needed);
        }
    }
    if found.is_empty() && wanted.is_empty() {
        return Ok(());
    }
    let list = |slots: BTreeSet<&str>| match slots.is_empty() {
        true => "none".to_owned(),
        false => slots.into_iter().collect::<Vec<_>>().join(", "),
    };
    let changes = spec_changes::of_optimizer(spec, &loaded.state);
    let changes = changes.map_or_else(String::new, |changes| format!(": {changes}"));
    let (found, wanted, path) = (list(found), list(wanted), loaded.path.display());
    Err(Error::checkpoint(format!(
        "its optimizer state is {found}; the spec's optimizer needs {wanted}{changes}"
    ))
    .hint(format!(
        "resume with the optimizer of the checkpoint; or start a new run from its weights with \
         `model.pretrained = \"{path}/model.safetensors\"` and another `--out`"
    )))
}

/// What a changed optimizer keeps from a checkpoint; `None` if nothing has changed.
pub fn kept(spec: OwnSpec<'_>, state: &RunState, slots: &[&str]) -> Option<String> {
    spec_changes::of_optimizer(spec, state)?;
    let kept = [slots, &["the number of steps"]].concat().join(", ");
    Some(format!("the optimizer has changed; kept: {kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::testing::{SPEC, TestRun, plan};
    use base::error::ErrorKind;

    const ADAMW: &[&str] = &["optimizer.name=adamw"];
    const SGD: &[&str] = &[];
    const MOMENTUM: &[&str] = &["optimizer.momentum=0.9"];

    fn after_an_epoch_of(sets: &[&str]) -> TestRun {
        let run = TestRun::new(SPEC);
        run.train(1, &[sets, &["epochs=1"]].concat()).unwrap();
        run
    }

    #[test]
    fn an_optimizer_with_other_state_is_refused_in_either_direction() {
        for (before, after, kept, keeps, key) in [
            (ADAMW, SGD, "exp_avg, exp_avg_sq", "none", "optimizer.name = \"adamw\", now \"sgd\""),
            (SGD, ADAMW, "none", "exp_avg, exp_avg_sq", "optimizer.name = \"sgd\", now \"adamw\""),
            (MOMENTUM, SGD, "momentum_buffer", "none", "optimizer.momentum = 0.9, now 0.0"),
            (SGD, MOMENTUM, "none", "momentum_buffer", "optimizer.momentum = 0.0, now 0.9"),
        ] {
            let run = after_an_epoch_of(before);
            let bits = run.bits();
            let error = run.train(1, after).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Io);
            for words in [&format!("state is {kept};"), &format!("needs {keeps}"), key] {
                assert!(error.message.contains(words), "{words} in: {error}");
            }
            assert!(error.hint.is_some_and(|hint| hint.contains("model.pretrained")));
            assert!(run.bits() == bits);
            run.train(1, before).unwrap();
        }
    }

    #[test]
    fn a_change_that_keeps_the_state_is_applied_and_reported_once() {
        let run = after_an_epoch_of(ADAMW);
        let loaded = checkpoint::load_any(&run.newest()).unwrap();
        let slots = ["exp_avg", "exp_avg_sq"];
        let same = plan(SPEC, ADAMW, 1);
        assert_eq!(kept(OwnSpec::new(&same), &loaded.state, &slots), None);
        let sets = ["seed=7", "optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.5"];
        let now = plan(SPEC, &sets, 1);
        let told = kept(OwnSpec::new(&now), &loaded.state, &slots).unwrap();
        assert_eq!(told, "the optimizer has changed; kept: exp_avg, exp_avg_sq, the number of steps");
        let optimizer = [
            "optimizer.lr            0.05, now 0.01; from the next step; its state is kept where it fits",
            "optimizer.weight_decay  0.01, now 0.5; from the next step; its state is kept where it fits",
        ];
        // Also if the earlier spec is missing.
        std::fs::remove_file(run.out().join("job.toml")).unwrap();
        assert_eq!(spec_changes::since(OwnSpec::new(&now), &loaded, &now.to_toml()), optimizer);
        std::fs::write(run.out().join("job.toml"), same.to_toml()).unwrap();
        let told = spec_changes::since(OwnSpec::new(&now), &loaded, &now.to_toml());
        assert_eq!(told[..2], optimizer);
        assert!(told.len() == 3 && told[2].contains("3, now 7"), "{told:?}");
        run.train(1, &sets[1..]).unwrap();
    }
}
