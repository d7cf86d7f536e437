//! Where a run of a plan ends.

use crate::plan::testing::resolved;
use crate::registry::Registry;
use train::training::{Batching, Position};

const SPEC: &str = "name = \"run\"\nepochs = 6\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 4\nval_split = 0.2\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\n";

fn position(epoch: u64, step_in_epoch: u64) -> Position {
    Position { epoch, step_in_epoch, ..Position::new(Batching::new(1, 8, 1)) }
}

#[test]
fn stop_after_ends_a_run_at_the_end_of_that_epoch_and_changes_no_results() {
    let plan =
        |sets: &[&str]| resolved(&Registry::standard(), SPEC, sets, 1).unwrap_or_else(|e| panic!("{e}"));
    let (whole, part) = (plan(&[]), plan(&["train.stop_after=2"]));
    assert_eq!(whole.hash, part.hash);
    let settings = part.settings();
    let over = |epoch, step| settings.is_over(&position(epoch, step));
    assert!(!over(1, 0) && over(2, 0) && over(3, 0));
    assert!(!settings.is_paused(&position(1, 0)) && settings.is_paused(&position(2, 0)));
    assert!(!settings.is_paused(&position(6, 0)), "nothing is left to train");
    assert!(!over(2, 1), "a step of the next epoch is finished with its epoch");
    assert_eq!(
        settings.ends_early(&position(2, 0)).as_deref(),
        Some("it was to end after 2 epochs of 6")
    );
    // The end of the whole run is not early.
    assert_eq!(settings.ends_early(&position(6, 0)), None);
    assert!(!whole.settings().is_over(&position(2, 0)));
}

/// 64 samples are 8 steps.
#[test]
fn a_complete_run_is_in_its_last_epoch() {
    let of = |sets: &[&str], epoch: u64, step: u64| {
        let plan = resolved(&Registry::standard(), SPEC, sets, 1).unwrap_or_else(|e| panic!("{e}"));
        let whole = Position { step: 8 * epoch + step, ..position(epoch, step) };
        plan.settings().epoch_at(&whole)
    };
    assert_eq!((of(&[], 0, 0), of(&[], 1, 0), of(&[], 1, 3), of(&[], 6, 0)), (1, 2, 2, 6));
    let eight = ["train.max_steps=8", "epochs=2"];
    assert_eq!((of(&eight, 0, 0), of(&eight, 1, 0)), (1, 1), "`max_steps` ends it before the second");
}
