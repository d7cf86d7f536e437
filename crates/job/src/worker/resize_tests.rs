//! A run resumed with another number of processes equals the uninterrupted one up to f32 rounding, also at the end of
//! an epoch, and with everything that has a state or rules of its own.

use super::testing::{SPEC, TestRun};
use checkpoint::{Loaded, RunState, TensorMap, read_state};
use record::Event;
use train::training::TrainingEnd;

/// With 94 samples, the last batch of an epoch is not full with either number of processes.
const TAIL: [&str; 5] =
    ["epochs=3", "batch_size=4", "dataset.samples=94", "dataset.val_split=0.0", "optimizer.momentum=0.9"];

#[test]
fn micro_batches_weigh_by_their_samples_at_an_epochs_end() {
    let cases = [
        (2, 1, "train.accumulate=1", "dataset.drop_last=false"),
        (2, 1, "train.accumulate=1", "dataset.drop_last=true"),
        (1, 2, "train.accumulate=4", "dataset.drop_last=false"),
        // Twelve samples remain for the last step: three on each of four processes.
        (1, 4, "train.accumulate=4", "dataset.drop_last=true"),
    ];
    for (before, after, accumulate, drop_last) in cases {
        let sets = [&TAIL[..], &[accumulate, drop_last]].concat();
        let resized = TestRun::new(SPEC);
        assert_eq!(resized.until(before, &sets, 3).unwrap(), TrainingEnd::Stopped);
        // Both continue from the same step, because ranks that are threads draw their initial weights from one generator.
        let whole = resized.copied();
        whole.train(before, &sets).unwrap();
        resized.train(after, &sets).unwrap();
        near_steps(&resized, &whole, &format!("{before} to {after}, {accumulate}, {drop_last}"));
    }
}

#[track_caller]
fn near_steps(got: &TestRun, expected: &TestRun, at: &str) {
    let (got, expected) = (got.steps(), expected.steps());
    assert_eq!(got.len(), expected.len(), "{at}");
    for (a, b) in got.iter().zip(&expected) {
        assert!((a.0, a.1) == (b.0, b.1) && (a.2 - b.2).abs() <= 1e-5 * b.2, "{at}: {a:?} against {b:?}");
    }
}

#[track_caller]
fn near_tensors(got: &TensorMap, expected: &TensorMap, at: &str) {
    assert!(got.len() == expected.len() && !got.is_empty(), "{at}: {} tensors", got.len());
    for (a, b) in got.iter().zip(expected.iter()) {
        let values = a.to_f32_vec().into_iter().zip(b.to_f32_vec());
        let worst = values.map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f32::max);
        assert!(a.name == b.name && worst <= 1e-5, "{at}: {} differs by {worst}", a.name);
    }
}

/// Keeps eight steps of eight samples in an epoch, for two ranks and for one that two take over from.
fn eight_samples<'a>(sets: &[&'a str], before: usize) -> Vec<&'a str> {
    [sets, &["batch_size=4", if before == 1 { "train.accumulate=2" } else { "train.accumulate=1" }]].concat()
}

/// A run of `before` ranks that is stopped in step `step`, with its continuations: by as many ranks, and by `after`.
fn continued(sets: &[&str], [before, after]: [usize; 2], step: u64) -> [TestRun; 3] {
    let (resized, sets) = (TestRun::new(SPEC), &eight_samples(sets, before));
    assert_eq!(resized.until(before, sets, step).unwrap(), TrainingEnd::Stopped);
    let (begun, whole) = (resized.copied(), resized.copied());
    whole.train(before, sets).unwrap();
    resized.train(after, sets).unwrap();
    [begun, whole, resized]
}

/// A frozen layer, and a rate, momentum and decay of their own.
#[test]
fn parameter_groups_keep_their_rules() {
    let groups = "optimizer.group=[{match=\"0.weight\", frozen=true}, {match=\"2.*\", lr=0.02, momentum=0.5, weight_decay=0.1}]";
    let sets = [
        "model.name=mlp",
        "model.hidden=[6]",
        "epochs=2",
        "optimizer.momentum=0.9",
        "train.clip_norm=0.5",
        groups,
    ];
    for worlds in [[2, 1], [1, 2]] {
        let [begun, whole, resized] = continued(&sets, worlds, 3);
        let at = format!("{worlds:?}");
        near_steps(&resized, &whole, &at);
        let [begun, whole, resized] = [begun, whole, resized].map(|run| run.loaded());
        near_tensors(&resized.model, &whole.model, &at);
        near_tensors(&resized.optimizer, &whole.optimizer, &at);
        let of = |loaded: &Loaded, name: &str| loaded.model.get(name).unwrap().to_f32_vec();
        for (name, frozen) in [("0.weight", true), ("0.bias", false), ("2.weight", false)] {
            assert_eq!(of(&begun, name) == of(&resized, name), frozen, "{at}: {name}");
        }
        assert!(resized.optimizer.iter().all(|state| !state.name.ends_with("0.weight")));
    }
}

/// Updates are due in every third step, and their number determines the decay.
#[test]
fn the_average_is_updated_in_the_same_steps() {
    let sets = ["epochs=3", "ema.decay=0.9", "ema.every=3", "ema.warmup_power=0.75"];
    for worlds in [[2, 1], [1, 2]] {
        let [begun, whole, resized] = continued(&sets, worlds, 4);
        let at = format!("{worlds:?}");
        let val = |run: &TestRun| run.epochs().into_iter().map(|epoch| epoch.3.unwrap()).collect::<Vec<_>>();
        for (a, b) in val(&resized).iter().zip(val(&whole)) {
            assert!((a - b).abs() <= 1e-5 * b, "{at}: {a} against {b}");
        }
        let [begun, whole, resized] = [begun, whole, resized].map(|run| run.loaded());
        near_tensors(&resized.ema, &whole.ema, &at);
        let updates = |loaded: &Loaded| loaded.state.extra["position"]["ema"].as_u64().unwrap();
        assert!(updates(&resized) == updates(&whole) && updates(&resized) > updates(&begun) + 1, "{at}");
        assert!(resized.ema != begun.ema && resized.ema != resized.model, "{at}");
    }
}

/// A learning rate at which the loss soon rises; a wait that has begun continues.
#[test]
fn an_early_stop_waits_for_as_many_evaluations() {
    let sets = ["epochs=40", "optimizer.lr=0.4", "save_every=1", "early_stop.patience=2"];
    for [before, after] in [[2, 1], [1, 2]] {
        let (whole, resized, sets) = (TestRun::new(SPEC), TestRun::new(SPEC), eight_samples(&sets, before));
        whole.train(before, &sets).unwrap();
        let epochs = whole.epochs();
        assert!((3..40).contains(&epochs.len()), "{epochs:?}");
        // In the last epoch, after the first evaluation without an improvement.
        let stop = (epochs.len() as u64 - 1) * 8 + 2;
        assert_eq!(resized.until(before, &sets, stop).unwrap(), TrainingEnd::Stopped);
        resized.train(after, &sets).unwrap();
        assert_eq!(resized.epochs().len(), epochs.len(), "from {before} to {after} ranks: {epochs:?}");
        near_steps(&resized, &whole, &format!("from {before} to {after} ranks"));
        let Some(Event::End(end)) = resized.events().pop() else { panic!("{:?}", resized.events()) };
        assert!(end.reason.contains("val.loss has not improved in 2 evaluations"), "{}", end.reason);
    }
}

/// Each image is mixed with the one before it in its micro-batch, so another number of ranks mixes others: what is exact is the
/// run that continues with them, however it is interrupted.
#[test]
fn mixing_is_exact_after_a_change() {
    let spec = "name = \"mixed\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"linear\"\n\
        [dataset]\nname = \"shapes\"\ntrain = 60\nval = 12\nsize = 16\nworkers = 0\n\
        [optimizer]\nname = \"adamw\"\nlr = 0.01\n[metrics]\nlog_every = 1\n";
    let mixed = ["train.mixup=0.8", "train.cutmix=1.0"];
    for (before, after) in [(2, 1), (1, 2)] {
        let start = TestRun::new(spec);
        assert_eq!(start.until(before, &mixed, 3).unwrap(), TrainingEnd::Stopped);
        let (whole, cut, plain) = (start.copied(), start.copied(), start.copied());
        whole.train(after, &mixed).unwrap();
        for stop_after in [1, 2] {
            assert_eq!(cut.until(after, &mixed, stop_after).unwrap(), TrainingEnd::Stopped);
        }
        cut.train(after, &mixed).unwrap();
        assert_eq!((cut.steps(), cut.epochs()), (whole.steps(), whole.epochs()));
        assert!(cut.bits() == whole.bits(), "from {before} to {after} ranks");
        plain.train(after, &[]).unwrap();
        assert!(plain.bits() != whole.bits(), "nothing is mixed after the change");
    }
}

#[test]
fn a_resumed_run_has_the_steps_of_its_batch() {
    for (rule, steps) in [("keep-global-batch", 36), ("keep-local-batch", 69)] {
        let run = TestRun::new(SPEC);
        let rule = format!("train.on_resize={rule}");
        let sets = [&TAIL[..], &[&rule]].concat();
        run.until(2, &sets, 3).unwrap();
        run.train(1, &sets).unwrap();
        assert_eq!(run.steps().len(), steps);
    }
}

#[test]
fn training_time_sums_all_starts() {
    let run = TestRun::new(SPEC);
    run.until(1, &[], 3).unwrap();
    let path = run.newest().join("state.json");
    let state = RunState { wall_seconds: 1e6, ..read_state(&run.newest()).unwrap() };
    std::fs::write(path, state.to_json().unwrap()).unwrap();
    run.train(1, &[]).unwrap();
    assert!(read_state(&run.newest()).unwrap().wall_seconds > 1e6);
    let Some(Event::End(end)) = run.events().pop() else { panic!("{:?}", run.events()) };
    assert!(end.seconds > 1e6, "{end:?}");
}
