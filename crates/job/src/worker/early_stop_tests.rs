//! `[early_stop]` ends a run after the same epoch, however it was interrupted; more patience continues it.

use super::testing::{SPEC, TestRun};
use base::numbers::significant;
use record::Event;

/// A learning rate at which the loss soon rises.
const SETS: [&str; 4] = ["epochs=40", "optimizer.lr=0.4", "save_every=1", "early_stop.patience=2"];

fn reason(run: &TestRun) -> String {
    let mut ends = run
        .events()
        .into_iter()
        .filter_map(|e| if let Event::End(end) = e { Some(end.reason) } else { None });
    ends.next_back().unwrap()
}

#[test]
fn a_run_ends_after_the_same_epoch_however_it_is_interrupted() {
    [1, 2].into_iter().for_each(ends_after_the_same_epoch);
}

fn ends_after_the_same_epoch(world: usize) {
    let (whole, cut) = (TestRun::new(SPEC), TestRun::new(SPEC));
    whole.train(world, &SETS).unwrap();
    let losses: Vec<f64> = whole.epochs().iter().map(|e| e.3.unwrap()).collect();
    let best = losses.iter().copied().fold(f64::INFINITY, f64::min);
    assert!((3..40).contains(&losses.len()), "{losses:?}");
    assert_eq!(losses[losses.len() - 3], best, "{losses:?}");
    let expected =
        format!("early stop: val.loss has not improved in 2 evaluations, the best was {}", significant(best));
    assert_eq!(reason(&whole), expected);
    let steps = whole.steps().last().unwrap().0;
    // The last of these stops is in the last step, before its evaluation.
    let (few, half) = (7, steps / 2);
    cut.in_parts(world, &SETS, &[1, few, half, steps - 1 - few - half]);
    cut.assert_same(&whole);
    assert_eq!(reason(&cut), expected);
}

#[test]
fn more_patience_continues_a_run_that_ended() {
    let (whole, run) = (TestRun::new(SPEC), TestRun::new(SPEC));
    run.train(1, &SETS).unwrap();
    let ended = run.epochs().len();
    // The same command does nothing.
    run.train(1, &SETS).unwrap();
    assert_eq!(run.epochs().len(), ended);
    let more = [&SETS[..3], &["early_stop.patience=4"]].concat();
    run.train(1, &more).unwrap();
    whole.train(1, &more).unwrap();
    assert!(run.epochs().len() > ended);
    run.assert_same(&whole);
}
