//! `train.max_steps` ends a run at that step; with a larger value it continues from there.

use super::testing::{SPEC, TestRun};
use train::training::TrainingEnd;

/// The learning rates of the whole run must not depend on where it was interrupted.
const SETS: [&str; 3] = ["epochs=3", "optimizer.momentum=0.9", "save_every=3 steps"];

fn and<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SETS, more].concat()
}

#[test]
fn a_run_that_max_steps_cut_in_mid_epoch_resumes_to_the_same_bits() {
    let (whole, cut) = (TestRun::new(SPEC), TestRun::new(SPEC));
    whole.train(1, &SETS).unwrap();
    // Eight steps per epoch.
    cut.train(1, &and(&["train.max_steps=11"])).unwrap();
    let ends: Vec<_> = cut.epochs().iter().map(|e| (e.0, e.1, e.3.is_some())).collect();
    assert_eq!(ends, [(0, 8, true), (1, 11, true)], "an epoch that is cut short is evaluated too");
    cut.train(1, &and(&["train.max_steps=13"])).unwrap();
    cut.train(1, &SETS).unwrap();
    cut.assert_same(&whole);
}

#[test]
fn max_steps_alone_trains_as_many_epochs_as_it_takes() {
    let spec = SPEC.replace("epochs = 6\n", "");
    let sets = ["train.max_steps=27", "scheduler.name=cosine", "optimizer.momentum=0.9"];
    let (alone, both, cut) = (TestRun::new(&spec), TestRun::new(SPEC), TestRun::new(&spec));
    alone.train(1, &sets).unwrap();
    let ends: Vec<_> = alone.epochs().iter().map(|e| (e.0, e.1)).collect();
    assert_eq!(ends, [(0, 8), (1, 16), (2, 24), (3, 27)]);
    // As with the epochs that it takes, also after a stop.
    both.train(1, &[&sets[..], &["epochs=4"]].concat()).unwrap();
    alone.assert_same(&both);
    assert_eq!(cut.until(1, &sets, 19).unwrap(), TrainingEnd::Stopped);
    cut.train(1, &sets).unwrap();
    cut.assert_same(&alone);
}

#[test]
fn a_run_with_all_steps_done_does_nothing() {
    let run = TestRun::new(SPEC);
    let sets = and(&["train.max_steps=11"]);
    run.train(1, &sets).unwrap();
    let before = (run.steps(), run.epochs(), run.bits(), run.kept());
    let saves = |run: &TestRun| run.events().iter().filter(|e| e.step() == Some(11)).count();
    let written = saves(&run);
    run.train(1, &sets).unwrap();
    assert!((run.steps(), run.epochs(), run.bits(), run.kept()) == before);
    // No evaluation, no save, and no event for them.
    assert_eq!(saves(&run), written);
}

/// The stop saves without an evaluation; the next start of the same command adds it.
#[test]
fn a_stop_in_the_last_step_leaves_the_evaluation_to_the_next_start() {
    let (whole, run) = (TestRun::new(SPEC), TestRun::new(SPEC));
    let sets = and(&["train.max_steps=11"]);
    whole.train(1, &sets).unwrap();
    assert_eq!(run.until(1, &sets, 11).unwrap(), TrainingEnd::Stopped);
    assert_eq!(run.epochs().len(), 1);
    run.train(1, &sets).unwrap();
    assert_eq!((run.steps(), run.epochs()), (whole.steps(), whole.epochs()));
}

#[test]
fn with_max_steps_the_schedule_goes_on_where_the_global_batch_changes() {
    let run = TestRun::new(SPEC);
    let sets = [
        "epochs=10",
        "batch_size=4",
        "train.max_steps=40",
        "scheduler.name=cosine",
        "scheduler.unit=step",
        "train.on_resize=keep-local-batch",
    ];
    assert_eq!(run.until(2, &sets, 20).unwrap(), TrainingEnd::Stopped);
    run.train(1, &sets).unwrap();
    let steps = run.steps();
    assert_eq!(steps.len(), 40);
    for (step, lr, _) in steps {
        let expected = 0.05 * (1.0 + ((step - 1) as f64 / 40.0 * std::f64::consts::PI).cos()) / 2.0;
        assert!((lr - expected).abs() < 1e-12, "step {step}: {lr} instead of {expected}");
    }
}
