//! Runs that were started several times: with other numbers of processes, other specs, and back to an earlier checkpoint.

use super::{Run, differing};
use crate::common::*;
use serde_json::Value;

/// A part as it is told.
fn part(from: u64, world: u64, at_epoch_end: bool) -> Value {
    serde_json::json!({ "from": from, "world": world, "at_epoch_end": at_epoch_end })
}

/// It is repeated in these parts, to the bit, and all that is recorded is compared.
#[track_caller]
fn assert_repeated(found: &Value, parts: &[Value], events: [u64; 2]) {
    assert_eq!(found["parts"], Value::Array(parts.to_vec()), "{found:#}");
    let compared = &found["compared"];
    assert_eq!(found["identical"], true, "{found:#}");
    assert_eq!([&compared["step_events"], &compared["epoch_events"]], events, "{found:#}");
    assert_eq!((differing(found), &found["unknown"]), (vec![], &Value::Array(Vec::new())), "{found:#}");
    let left = compared["not_compared"].as_array().expect("a list");
    assert!(!left.iter().any(|line| line.as_str().is_some_and(|line| line.contains("event"))), "{found:#}");
}

/// Stopped in the middle of an epoch, and killed after the end of one: each time it goes on with another number of processes.
#[test]
fn a_resized_run_is_repeated_as_it_was() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], Some(("DDP_RUN_STOP_AT", "7")), 75);
    run.train(&["--nproc-per-node", "1"], None, 0);
    let found = run.found(&[], 0);
    assert_repeated(&found, &[part(0, 2, false), part(7, 1, false)], [32, 2]);

    let run = Run::new();
    let by_epoch = ["--set", "save_every=1", "--set", "checkpoint.async=false"];
    run.train(&by_epoch, Some(("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=20")), 90);
    run.train(&[&by_epoch[..], &["--nproc-per-node", "1"]].concat(), None, 0);
    let found = run.found(&[], 0);
    assert_repeated(&found, &[part(0, 2, false), part(16, 1, true)], [32, 2]);
}

/// The first epoch had another learning rate, and a schedule that ended with it.
#[test]
fn a_run_that_went_on_with_another_spec_is_repeated_with_both() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "epochs=1"], None, 0);
    run.train(&["--set", "optimizer.lr=2e-2", "--accept-changes"], None, 0);
    let found = run.found(&[], 0);
    assert_repeated(&found, &[part(0, 2, false), part(16, 2, true)], [32, 2]);
    let text = stdout(&run.repro(&["--steps", "20"]));
    let repeats =
        "\nrepeats steps 1 to 16 with 2 processes, steps 17 to 20 with 2 processes and another spec\n";
    assert!(text.contains(repeats) && text.contains("identical to the bit: 20 step events"), "{text}");
}

/// The starts before and after the pause have the same results, and not the same end.
#[test]
fn a_run_that_went_on_behind_a_pause_and_then_with_another_spec_is_repeated() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "train.stop_after=1"], None, 0);
    run.train(&[], Some(("DDP_RUN_STOP_AT", "20")), 75);
    run.train(&["--set", "optimizer.lr=2e-2", "--accept-changes"], None, 0);
    assert_repeated(&run.found(&[], 0), &[part(0, 2, false), part(16, 2, true), part(20, 2, false)], [32, 2]);
}

/// The loss of a line is the mean since the line before.
#[test]
fn lines_are_as_often_as_they_were() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "metrics.log_every=5"], Some(("DDP_RUN_STOP_AT", "8")), 75);
    run.train(&[], None, 0);
    assert_repeated(&run.found(&[], 0), &[part(0, 2, false), part(8, 2, false)], [25, 2]);
}

/// A part that ends with an epoch goes on for a step, so that the epoch is measured; that step was another part's.
#[test]
fn the_step_behind_a_part_is_that_of_the_next() {
    let _alone = alone();
    let run = Run::new();
    let by_epoch = ["--set", "save_every=1", "--set", "checkpoint.async=false"];
    run.train(&by_epoch, Some(("DDP_RUN_FAULT", "kill:rank=0,phase=forward,step=20")), 90);
    let all = ["--set", "save_every=\"1 step\"", "--set", "checkpoint.keep_last=0", "--nproc-per-node", "1"];
    run.train(&all, None, 0);
    let found = run.found(&[], 0);
    assert_repeated(&found, &[part(0, 2, false), part(16, 1, true)], [32, 2]);
    let steps: Vec<u64> = (16..=32).collect();
    assert_eq!(found["compared"]["checkpoints"], serde_json::json!(steps), "{found:#}");
}

/// The step was saved by the stop, and again when it was measured, by the start that went on.
#[test]
fn a_stop_at_the_end_of_an_epoch_is_repeated() {
    let _alone = alone();
    let run = Run::new();
    run.train(&["--set", "checkpoint.keep_last=0"], Some(("DDP_RUN_STOP_AT", "16")), 75);
    run.train(&["--set", "checkpoint.keep_last=0", "--nproc-per-node", "1"], None, 0);
    let found = run.found(&[], 0);
    assert_repeated(&found, &[part(0, 2, false), part(16, 1, false)], [32, 2]);
    let compared = found["compared"]["checkpoints"].as_array().expect("a list");
    assert!(compared.contains(&16.into()), "{found:#}");
}

/// What was trained with it is not there any more, and does not have to be repeated.
#[test]
fn a_spec_whose_steps_were_all_undone_is_not_missed() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], Some(("DDP_RUN_STOP_AT", "10")), 75);
    run.train(&["--set", "optimizer.lr=2e-2", "--accept-changes"], Some(("DDP_RUN_STOP_AT", "14")), 75);
    let back = run.out.join("checkpoints/step-00000010");
    run.train(&["--resume", back.to_str().expect("plain")], None, 0);
    assert_repeated(&run.found(&[], 0), &[part(0, 2, false)], [32, 2]);
}

/// The second start kept the batch of each process, the third what there was then.
#[test]
fn a_resize_keeps_what_it_kept_then() {
    let _alone = alone();
    let run = Run::new();
    run.train(&[], Some(("DDP_RUN_STOP_AT", "8")), 75);
    let local = ["--set", "train.on_resize=keep-local-batch", "--nproc-per-node", "1"];
    run.train(&local, Some(("DDP_RUN_STOP_AT", "12")), 75);
    run.train(&[], None, 0);
    let found = run.found(&["--steps", "14"], 0);
    assert_repeated(&found, &[part(0, 2, false), part(8, 1, false), part(12, 2, false)], [14, 0]);
}
