//! `train.stop_after` ends a run so that it can continue, whatever else it saves.

use super::testing::{SPEC, TestRun};

const SETS: [&str; 3] = ["epochs=3", "optimizer.momentum=0.9", "ema.decay=0.9"];

#[test]
fn a_run_that_saves_nothing_else_goes_on_after_a_pause() {
    let (whole, run) = (TestRun::new(SPEC), TestRun::new(SPEC));
    whole.train(1, &SETS).unwrap();
    let never = [&SETS[..], &["save_every=never"]].concat();
    for pause in ["train.stop_after=1", "train.stop_after=2"] {
        let paused = [&never[..], &[pause]].concat();
        run.train(1, &paused).unwrap();
        let end = run.steps().last().unwrap().0;
        assert_eq!(run.kept().last(), Some(&end), "{pause}");
        // The same command does nothing.
        run.train(1, &paused).unwrap();
        assert_eq!(run.steps().last().unwrap().0, end);
    }
    // The end of the whole run is not saved.
    let other = run.copied();
    other.train(1, &never).unwrap();
    assert_eq!(other.kept(), [*run.kept().last().unwrap()]);
    run.train(1, &SETS).unwrap();
    run.assert_same(&whole);
}
