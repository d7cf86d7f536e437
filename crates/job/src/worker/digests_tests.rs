//! Digests of whole runs whose ranks are threads: what they are equal for, and what is left of them after a resume.

use super::testing::{SPEC, TestRun};
use record::{DigestGroup, DigestLine, read_digests};
use std::collections::BTreeMap;

const EACH: &str = "metrics.digests=\"1 step\"";

fn digests(run: &TestRun) -> BTreeMap<u64, DigestLine> {
    read_digests(run.out()).unwrap()
}

fn trained(world: usize, sets: &[&str]) -> BTreeMap<u64, DigestLine> {
    let run = TestRun::new(SPEC);
    run.train(world, &[&[EACH, "epochs=1"], sets].concat()).unwrap();
    digests(&run)
}

#[test]
fn equal_runs_have_equal_digests_and_others_tell_what_differs_first() {
    let one = trained(2, &["optimizer.name=adamw"]);
    assert_eq!(one.len(), 4);
    assert_eq!(trained(2, &["optimizer.name=adamw"]), one);
    for group in [DigestGroup::Input, DigestGroup::Gradient, DigestGroup::Optimizer, DigestGroup::Parameter] {
        assert!(!one[&1].group(group).is_empty(), "{group}");
    }
    let first = |set: &str| {
        let other = trained(2, &["optimizer.name=adamw", set]);
        one[&1].differences(&other[&1]).first().map(|tensor| tensor.group)
    };
    assert_eq!(first("seed=4"), Some(DigestGroup::Input));
    assert_eq!(first("optimizer.lr=0.06"), Some(DigestGroup::Parameter));
    assert_eq!(first("optimizer.betas=[0.8, 0.999]"), Some(DigestGroup::Optimizer));
}

#[test]
fn inputs_are_the_same_for_any_number_of_ranks() {
    let inputs = |lines: BTreeMap<u64, DigestLine>| {
        lines.into_values().map(|line| line.group(DigestGroup::Input).clone()).collect::<Vec<_>>()
    };
    let one = inputs(trained(1, &["batch_size=16"]));
    assert!(one.len() > 1 && one[0] != one[1]);
    assert_eq!(inputs(trained(2, &["batch_size=8"])), one);
    assert_eq!(inputs(trained(2, &["batch_size=4", "train.accumulate=2"])), one);
}

/// Saves every two steps; is stopped in step 5 without a save, so that step 5 is repeated.
#[test]
fn a_resumed_run_has_each_step_once() {
    let sets = [EACH, "save_every=\"2 steps\"", "checkpoint.on_preempt=exit", "ema.decay=0.9"];
    let whole = TestRun::new(SPEC);
    whole.train(2, &sets).unwrap();
    let parts = TestRun::new(SPEC);
    parts.in_parts(2, &sets, &[5]);
    assert_eq!(digests(&parts), digests(&whole));
    assert!(!digests(&whole)[&1].group(DigestGroup::Average).is_empty());
    let text = std::fs::read_to_string(parts.out().join("digests.jsonl")).unwrap();
    assert_eq!(text.lines().count(), digests(&whole).len());
    // The cadence changes no result.
    let without = TestRun::new(SPEC);
    without.train(2, &sets[1..]).unwrap();
    without.assert_same(&whole);
    assert!(!without.out().join("digests.jsonl").exists());
}

#[test]
fn checked_replicas_agree_and_have_the_same_results() {
    let run = |sets: &[&str]| {
        let run = TestRun::new(SPEC);
        run.train(2, sets).unwrap();
        run
    };
    for optimizer in ["optimizer.name=adamw", "optimizer.name=adafactor"] {
        let plain = run(&[optimizer]);
        run(&[optimizer, "distributed.check_replicas=\"1 step\"", "ema.decay=0.9"]);
        run(&[optimizer, "distributed.check_replicas=\"3 steps\""]).assert_same(&plain);
    }
}
