//! A run resumed with another number of processes equals the uninterrupted one up to f32 rounding, also at the end of
//! an epoch.

use super::testing::{Run, SPEC};
use crate::checkpoint::{State, read_state};
use crate::telemetry::Event;
use crate::train::Ended;

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
        let resized = Run::of(SPEC);
        assert_eq!(resized.until(before, &sets, 3).unwrap(), Ended::Stopped);
        // Both continue from the same step, because ranks that are threads draw their initial weights from one generator.
        let whole = resized.copied();
        whole.train(before, &sets).unwrap();
        resized.train(after, &sets).unwrap();
        let at = format!("{before} to {after}, {accumulate}, {drop_last}");
        let (got, expected) = (resized.steps(), whole.steps());
        assert_eq!(got.len(), expected.len(), "{at}");
        for (a, b) in got.iter().zip(&expected) {
            assert!((a.0, a.1) == (b.0, b.1) && (a.2 - b.2).abs() <= 1e-5 * b.2, "{at}: {a:?} against {b:?}");
        }
    }
}

#[test]
fn a_resumed_run_has_the_steps_of_its_batch() {
    for (rule, steps) in [("keep-global-batch", 36), ("keep-local-batch", 69)] {
        let run = Run::of(SPEC);
        let rule = format!("train.on_resize={rule}");
        let sets = [&TAIL[..], &[&rule]].concat();
        run.until(2, &sets, 3).unwrap();
        run.train(1, &sets).unwrap();
        assert_eq!(run.steps().len(), steps);
    }
}

#[test]
fn training_time_sums_all_starts() {
    let run = Run::of(SPEC);
    run.until(1, &[], 3).unwrap();
    let path = run.newest().join("state.json");
    let state = State { wall_seconds: 1e6, ..read_state(&run.newest()).unwrap() };
    std::fs::write(path, state.to_json().unwrap()).unwrap();
    run.train(1, &[]).unwrap();
    assert!(read_state(&run.newest()).unwrap().wall_seconds > 1e6);
    let Some(Event::End(end)) = run.events().pop() else { panic!("{:?}", run.events()) };
    assert!(end.seconds > 1e6, "{end:?}");
}
