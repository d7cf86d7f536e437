//! A checkpoint's optimizer and the spec's. Its arrays belong to the algorithm: another one that keeps others would go on as if it had
//! made all the steps so far, so it is refused. Any other change is followed, and said key by key.

use crate::checkpoint::{Loaded, State};
use crate::error::{Error, Result};
use crate::plan::Plan;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// # Errors
/// Exit code 74 when the checkpoint's optimizer kept other arrays than the spec's does.
pub fn fits(plan: &Plan, loaded: &Loaded, slots: &[&str]) -> Result<()> {
    let found: BTreeSet<&str> =
        loaded.optimizer.iter().filter_map(|t| Some(t.name.split_once('.')?.0)).collect();
    let wanted: BTreeSet<&str> = slots.iter().copied().collect();
    if found == wanted {
        return Ok(());
    }
    let list = |slots: BTreeSet<&str>| match slots.is_empty() {
        true => "nothing".to_owned(),
        false => slots.into_iter().collect::<Vec<_>>().join(", "),
    };
    let changes = match changes(&loaded.state, plan) {
        changes if changes.is_empty() => String::new(),
        changes => format!(": {}", changes.join(", ")),
    };
    let (found, wanted, path) = (list(found), list(wanted), loaded.path.display());
    Err(Error::checkpoint(format!(
        "its optimizer kept {found} of each parameter, the spec's keeps {wanted}{changes}"
    ))
    .hint(format!(
        "the optimizer that it was saved with goes on; `model.pretrained = \"{path}/model.safetensors\"` and another `--out` \
         start a run from its weights"
    )))
}

/// What is different in the optimizer since a checkpoint, and what is not; `None` where nothing is.
pub fn change(plan: &Plan, state: &State, slots: &[&str]) -> Option<String> {
    let changes = changes(state, plan);
    let kept = match slots.is_empty() {
        true => String::new(),
        false => format!("{}, ", slots.join(", ")),
    };
    let told = format!("the optimizer has changed: {}; kept: {kept}the number of steps", changes.join(", "));
    (!changes.is_empty()).then_some(told)
}

/// `lr = 0.01 (was 0.1)`, key by key. Nothing is known of checkpoints that don't say.
fn changes(state: &State, plan: &Plan) -> Vec<String> {
    let Value::Object(before) = &state.optimizer else { return Vec::new() };
    let now = plan.table("optimizer");
    let shown =
        |keys: &Map<String, Value>, key: &str| keys.get(key).map_or("not set".to_owned(), Value::to_string);
    let all: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = all.into_iter().filter(|key| before.get(*key) != now.get(*key));
    changed.map(|key| format!("{key} = {} (was {})", shown(&now, key), shown(before, key))).collect()
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
            (ADAMW, SGD, "exp_avg, exp_avg_sq", "nothing", "name = \"sgd\" (was \"adamw\")"),
            (SGD, ADAMW, "nothing", "exp_avg, exp_avg_sq", "name = \"adamw\" (was \"sgd\")"),
            (MOMENTUM, SGD, "momentum_buffer", "nothing", "momentum = 0.0 (was 0.9)"),
            (SGD, MOMENTUM, "nothing", "momentum_buffer", "momentum = 0.9 (was 0.0)"),
        ] {
            let run = after_an_epoch_of(before);
            let bits = run.bits();
            let error = run.train(1, after).unwrap_err();
            assert_eq!(error.code, ExitCode::Checkpoint);
            for words in [&format!("kept {kept} of each"), &format!("keeps {keeps}"), key] {
                assert!(error.message.contains(words), "{words} in: {error}");
            }
            assert!(error.hint.is_some_and(|hint| hint.contains("model.pretrained")));
            assert!(run.bits() == bits);
            run.train(1, before).unwrap();
        }
    }

    #[test]
    fn a_change_that_keeps_the_state_is_followed_and_said_key_by_key() {
        let run = after_an_epoch_of(ADAMW);
        let state = crate::checkpoint::read_state(&run.newest()).unwrap();
        let slots = ["exp_avg", "exp_avg_sq"];
        assert_eq!(change(&plan(SPEC, ADAMW, 1), &state, &slots), None);
        let sets = ["optimizer.name=adamw", "optimizer.lr=0.01", "optimizer.weight_decay=0.5"];
        let told = change(&plan(SPEC, &sets, 1), &state, &slots).unwrap();
        assert_eq!(
            told,
            "the optimizer has changed: lr = 0.01 (was 0.05), weight_decay = 0.5 (was 0.01); \
             kept: exp_avg, exp_avg_sq, the number of steps"
        );
        run.train(1, &sets).unwrap();
    }
}
