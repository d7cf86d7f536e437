//! Compares a checkpoint's optimizer with the spec's. Its arrays belong to the algorithm: one with other arrays would
//! continue as if it had made all steps so far, so it is rejected. Other changes are applied, and reported with those
//! of the spec.

use super::spec_changes;
use crate::checkpoint::{Loaded, State};
use crate::error::{Error, Result};
use crate::plan::Plan;
use std::collections::BTreeSet;

/// # Errors
/// Exit code 74: the checkpoint's optimizer has other arrays than the spec's.
pub fn fits(plan: &Plan, loaded: &Loaded, slots: &[&str]) -> Result<()> {
    let found: BTreeSet<&str> =
        loaded.optimizer.iter().filter_map(|t| Some(t.name.split_once('.')?.0)).collect();
    let wanted: BTreeSet<&str> = slots.iter().copied().collect();
    if found == wanted {
        return Ok(());
    }
    let list = |slots: BTreeSet<&str>| match slots.is_empty() {
        true => "none".to_owned(),
        false => slots.into_iter().collect::<Vec<_>>().join(", "),
    };
    let changes = spec_changes::of_optimizer(plan, &loaded.state);
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
pub fn kept(plan: &Plan, state: &State, slots: &[&str]) -> Option<String> {
    spec_changes::of_optimizer(plan, state)?;
    let kept = [slots, &["the number of steps"]].concat().join(", ");
    Some(format!("the optimizer has changed; kept: {kept}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ExitCode;
    use crate::worker::testing::{Run, SPEC, plan};

    const ADAMW: &[&str] = &["optimizer.name=adamw"];
    const SGD: &[&str] = &[];
    const MOMENTUM: &[&str] = &["optimizer.momentum=0.9"];

    fn after_an_epoch_of(sets: &[&str]) -> Run {
        let run = Run::of(SPEC);
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
            assert_eq!(error.code, ExitCode::Checkpoint);
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
        let loaded = crate::checkpoint::load_any(&run.newest()).unwrap();
        let slots = ["exp_avg", "exp_avg_sq"];
        let same = plan(SPEC, ADAMW, 1);
        assert_eq!(kept(&same, &loaded.state, &slots), None);
        let sets = ["seed=7", "optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.5"];
        let now = plan(SPEC, &sets, 1);
        let told = kept(&now, &loaded.state, &slots).unwrap();
        assert_eq!(told, "the optimizer has changed; kept: exp_avg, exp_avg_sq, the number of steps");
        let optimizer = "optimizer.lr = 0.05, now 0.01; optimizer.weight_decay = 0.01, now 0.5";
        // Also if the earlier spec is missing.
        std::fs::remove_file(run.out().join("job.toml")).unwrap();
        let told = spec_changes::since(&now, &loaded, &now.to_toml());
        assert_eq!(told.as_deref(), Some(optimizer));
        std::fs::write(run.out().join("job.toml"), same.to_toml()).unwrap();
        let told = spec_changes::since(&now, &loaded, &now.to_toml()).unwrap();
        assert_eq!(told, format!("{optimizer}; seed = 3, now 7"));
        run.train(1, &sets[1..]).unwrap();
    }
}
