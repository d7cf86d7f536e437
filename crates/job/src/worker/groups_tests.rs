//! `[[optimizer.group]]`: runs with frozen parameters, interrupted, and continued with other groups.

use super::optimizer::{Trained, freeze};
use super::testing::{SPEC, TestRun, plan, trained};
use crate::plan::Plan;
use base::error::ErrorKind;
use checkpoint::Loaded;
use ddp::device::Compute;
use train::models::{ALL, StateEntry};
use train::training::Updater;

/// Parameters `0.weight`, `0.bias`, `2.weight` and `2.bias`.
const MLP: [&str; 5] = [
    "model.name=mlp",
    "model.hidden=[6]",
    "optimizer.name=adamw",
    "optimizer.lr=0.02",
    "optimizer.weight_decay=0",
];
const GROUPS: &str = "optimizer.group=[{match=\"0.*\", frozen=true}, {match=\"2.weight\", lr=5e-3, betas=[0.8, 0.9], weight_decay=0.5}]";
const FROZEN: &str = "optimizer.group=[{match=\"0.*\", frozen=true}]";

fn with(sets: &[&'static str]) -> Vec<&'static str> {
    [&MLP, sets].concat()
}

fn values(loaded: &Loaded, name: &str) -> Vec<f32> {
    loaded.model.get(name).unwrap().as_f32().into_owned()
}

/// The parameters that have optimizer state, in order.
fn with_state(loaded: &Loaded) -> Vec<&str> {
    loaded.optimizer.iter().filter_map(|t| t.name.strip_prefix("exp_avg.")).collect()
}

/// The values before the first step.
fn initial(plan: &Plan, name: &str) -> Vec<f32> {
    let model = plan.model.source.build(&plan.dataset.facts, plan.seed, &Compute::host()).unwrap();
    let mut found = Vec::new();
    let mut see = |index: usize, values: &[f32]| {
        let entry: &StateEntry = &model.entries()[index];
        if entry.name == name {
            found = entry.to_dict(values);
        }
    };
    model.read(ALL, &mut see).unwrap();
    found
}

#[test]
fn a_run_with_groups_ends_with_the_same_bits_however_it_is_interrupted() {
    for world in [1, 2] {
        let sets = with(&[GROUPS, "epochs=3", "train.accumulate=2", "train.clip_norm=0.5"]);
        let (whole, cut) = (TestRun::new(SPEC), TestRun::new(SPEC));
        whole.train(world, &sets).unwrap();
        cut.in_parts(world, &sets, &[1, 3]);
        cut.assert_same(&whole);
        let (loaded, plan) = (whole.loaded(), plan(SPEC, &sets, world));
        for (name, frozen) in [("0.weight", true), ("0.bias", true), ("2.weight", false), ("2.bias", false)] {
            assert_eq!(values(&loaded, name) == initial(&plan, name), frozen, "{name}");
        }
        assert_eq!(with_state(&loaded), ["2.weight", "2.bias"]);
    }
}

/// Every group's rate and decay has an effect of its own, and nothing else has.
#[test]
fn groups_change_only_their_parameters() {
    let after_a_step = |group: &'static str| {
        let run = TestRun::new(SPEC);
        run.train(1, &with(&[group, "train.max_steps=1"])).unwrap();
        run.loaded()
    };
    let plain = after_a_step("optimizer.group=[]");
    let other = after_a_step("optimizer.group=[{match=\"2.*\", lr=0.04}]");
    let before = |name| initial(&plan(SPEC, &MLP, 1), name);
    for name in ["0.weight", "0.bias"] {
        assert_eq!(values(&plain, name), values(&other, name), "{name}");
    }
    for name in ["2.weight", "2.bias"] {
        let moved = |loaded| -> Vec<f32> {
            values(loaded, name).iter().zip(before(name)).map(|(now, before)| now - before).collect()
        };
        for (one, two) in moved(&plain).iter().zip(moved(&other)) {
            assert!((2.0 * one - two).abs() < 1e-4 * two.abs().max(1e-3), "{name}: {one}, {two}");
        }
    }
}

#[test]
fn a_parameter_that_is_trained_later_takes_the_step_of_a_new_run() {
    let run = TestRun::new(SPEC);
    run.train(1, &with(&[FROZEN, "train.max_steps=8"])).unwrap();
    let before = run.loaded();
    assert_eq!(with_state(&before), ["2.weight", "2.bias"]);
    let (one, half, whole) = (run.copied(), run.copied(), run.copied());
    one.train(1, &with(&["train.max_steps=9"])).unwrap();
    let after = one.loaded();
    assert_eq!(with_state(&after), ["0.weight", "0.bias", "2.weight", "2.bias"]);
    let moved = |name| -> Vec<f32> {
        values(&before, name).iter().zip(values(&after, name)).map(|(a, b)| (a - b).abs()).collect()
    };
    // The first step of Adam is the learning rate, however large the gradient; units that ReLU cuts off have none.
    let is_first = |x: &f32| *x == 0.0 || (x / 0.02 - 1.0).abs() < 1e-3;
    assert!(moved("0.weight").iter().any(|x| *x > 0.0) && moved("0.weight").iter().all(is_first));
    assert!(!moved("2.weight").iter().all(is_first));
    let since = &after.state.extra["trained"];
    assert_eq!(*since, serde_json::json!({ "since": { "0.bias": 8, "0.weight": 8 } }));
    // It stays exact, on another number of ranks too.
    let sets = with(&["epochs=3"]);
    whole.train(2, &sets).unwrap();
    half.in_parts(2, &sets, &[1, 4]);
    assert_eq!((half.steps(), half.bits() == whole.bits()), (whole.steps(), true));
}

#[test]
fn a_parameter_that_is_frozen_later_loses_its_state_only() {
    let run = TestRun::new(SPEC);
    run.train(1, &with(&["epochs=1"])).unwrap();
    let before = run.loaded();
    run.train(1, &with(&[FROZEN, "epochs=2"])).unwrap();
    let after = run.loaded();
    assert_eq!(values(&before, "0.weight"), values(&after, "0.weight"));
    assert_ne!(values(&before, "2.weight"), values(&after, "2.weight"));
    assert_eq!(with_state(&after), ["2.weight", "2.bias"]);
    run.train(2, &with(&["epochs=3"])).unwrap();
    assert_eq!(run.loaded().state.extra["trained"]["since"]["0.bias"], 16);
    assert_eq!(with_state(&run.loaded()), ["0.weight", "0.bias", "2.weight", "2.bias"]);
}

#[test]
fn a_resume_tells_what_is_trained_now() {
    let entries = |group: &'static str| {
        let plan = plan(SPEC, &with(&[group]), 1);
        let mut model = plan.model.source.build(&plan.dataset.facts, 1, &Compute::host()).unwrap();
        freeze(&plan.optimizer, &mut *model).unwrap();
        let updater = Updater::new(&plan.optimizer, None, model.entries(), model.device());
        (Trained::new(model.entries(), &updater), plan, model.entries().to_vec())
    };
    let ((whole, free, all), (part, freezes, some)) = (entries("optimizer.group=[]"), entries(FROZEN));
    assert!(whole.is_all() && !part.is_all());
    let none = [None, None];
    assert_eq!(
        (whole.changes(&free.optimizer, &all), part.changes(&freezes.optimizer, &some)),
        (none.clone(), none.clone())
    );
    // Frozen by the model itself.
    assert_eq!(whole.changes(&free.optimizer, &some), none);
    let frozen = "2 parameters are frozen from here on, without optimizer state: 0.weight, 0.bias";
    assert_eq!(whole.changes(&freezes.optimizer, &some), [Some(frozen.to_owned()), None]);
    let thawed = "2 parameters are trained from here on, with new optimizer state: 0.weight, 0.bias";
    assert_eq!(part.changes(&free.optimizer, &all), [None, Some(thawed.to_owned())]);
}

/// Another algorithm is refused as ever, also of one group.
#[test]
fn a_group_with_other_state_is_refused() {
    let sgd = ["model.name=mlp", "model.hidden=[6]"];
    let run = TestRun::new(SPEC);
    run.train(1, &[&sgd[..], &["epochs=1"]].concat()).unwrap();
    let momentum = "optimizer.group=[{match=\"2.weight\", momentum=0.9}]";
    let error = run.train(1, &[&sgd[..], &[momentum]].concat()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    assert!(error.message.contains("state is none; the spec's optimizer needs momentum_buffer"), "{error}");
}

/// The names of a model whose size follows from the data are known when it is built.
#[test]
fn a_group_that_does_not_fit_the_model_ends_the_run_before_it_begins() {
    let run = TestRun::new("");
    let data = run.out().join("a.csv");
    std::fs::write(&data, "a,b,y\n".to_owned() + &"1,2,3\n".repeat(20)).unwrap();
    let spec = format!(
        "name = \"run\"\nbatch_size = 4\nmodel.name = \"linear\"\n\
         [dataset]\nname = \"csv\"\npath = {data:?}\ntarget = \"y\"\nworkers = 0\n\
         [optimizer]\nname = \"sgd\"\n[optimizer.group]\nmatch = \"layer*\"\nlr = 1.0\n"
    );
    let plan = plan(&spec, &[], 1);
    assert!(plan.sizes.is_none());
    let error = trained(&plan, &run.out().join("out"), u64::MAX).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec);
    let expected =
        "optimizer.group.match: `layer*` matches no parameter of the model; it has `weight`, `bias`";
    assert_eq!(error.message, expected);
    assert!(!run.out().join("out/job.toml").exists());
}
