//! `reduce-on-plateau`: the rate falls after the same evaluations, however a run is interrupted, and not in its warm-up.

use super::testing::{SPEC, TestRun};

/// No evaluation but the first one is an improvement.
const SETS: [&str; 7] = [
    "epochs=6",
    "save_every=1",
    "scheduler.name=reduce-on-plateau",
    "scheduler.factor=0.5",
    "scheduler.patience=0",
    "scheduler.threshold=100.0",
    "scheduler.threshold_mode=abs",
];

/// The rate of the last step of each epoch, as a share of the base rate.
fn rates(run: &TestRun) -> Vec<f64> {
    let steps = run.steps();
    let at = |step: u64| steps.iter().find(|s| s.0 == step).unwrap().1 / 0.05;
    run.epochs().iter().map(|epoch| at(epoch.1)).collect()
}

#[test]
fn the_rate_falls_after_the_same_evaluations_however_a_run_is_interrupted() {
    for world in [1, 2] {
        let (whole, cut) = (TestRun::new(SPEC), TestRun::new(SPEC));
        whole.train(world, &SETS).unwrap();
        assert_eq!(rates(&whole), [1.0, 1.0, 0.5, 0.25, 0.125, 0.0625]);
        let per_epoch = 8 / world as u64;
        // The second of these stops is in the last step of an epoch, before its evaluation.
        cut.in_parts(world, &SETS, &[per_epoch + 1, per_epoch - 1, 2]);
        cut.assert_same(&whole);
    }
}

#[test]
fn the_rate_goes_on_with_another_number_of_ranks_and_another_metric() {
    let run = TestRun::new(SPEC);
    run.train(2, &[&SETS[1..], &["epochs=3"]].concat()).unwrap();
    run.train(1, &[&SETS[1..], &["epochs=4"]].concat()).unwrap();
    // The wait begins anew: the next evaluation is the best one.
    run.train(1, &[&SETS[..], &["scheduler.metric=train.loss"]].concat()).unwrap();
    assert_eq!(rates(&run), [1.0, 1.0, 0.5, 0.25, 0.125, 0.125]);
}

#[test]
fn evaluations_in_a_warm_up_and_epochs_without_one_do_not_count() {
    let run = TestRun::new(SPEC);
    run.train(1, &[&SETS[..], &["scheduler.warmup_epochs=2", "scheduler.warmup_start_factor=1.0"]].concat())
        .unwrap();
    assert_eq!(rates(&run), [1.0, 1.0, 1.0, 1.0, 0.5, 0.25]);
    let run = TestRun::new(SPEC);
    run.train(1, &[&SETS[..], &["train.eval_every=2"]].concat()).unwrap();
    assert_eq!(rates(&run), [1.0, 1.0, 1.0, 1.0, 0.5, 0.5]);
}

/// A last epoch is evaluated in any case. Of a run that goes on with more epochs, the rate is that of a run that always had as many.
#[test]
fn the_evaluation_of_a_last_epoch_alone_does_not_count() {
    let sets = [&SETS[1..], &["train.eval_every=3", "early_stop.patience=9"]].concat();
    let (whole, extended) = (TestRun::new(SPEC), TestRun::new(SPEC));
    whole.train(1, &[&sets[..], &["epochs=9"]].concat()).unwrap();
    extended.train(1, &[&sets[..], &["epochs=4"]].concat()).unwrap();
    assert!(extended.epochs()[3].3.is_some(), "the last epoch is evaluated");
    extended.train(1, &[&sets[..], &["epochs=9"]].concat()).unwrap();
    assert_eq!(rates(&whole), [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5]);
    assert_eq!(extended.steps(), whole.steps());
    assert!(extended.bits() == whole.bits(), "other tensors");
    let waited = |run: &TestRun| run.loaded().state.extra["position"]["early_stop"].clone();
    assert_eq!(waited(&extended), waited(&whole));
    assert!(waited(&whole).is_object());
}
