//! Which checkpoints are kept: each is ranked by measurements of exactly its own weights.

use super::testing::{SPEC, TestRun};
use base::error::ErrorKind;
use checkpoint::read_state;
use train::training::TrainingEnd;

/// The learning rate is too high: every evaluation is worse than the previous one. Four steps per epoch.
const WORSE: [&str; 2] = ["optimizer.lr=1.2", "batch_size=16"];

fn worse<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&WORSE, more].concat()
}

#[test]
fn a_checkpoint_that_was_not_evaluated_is_not_ranked_by_another_ones_evaluation() {
    for asynchronous in ["checkpoint.async=true", "checkpoint.async=false"] {
        let run = TestRun::new(SPEC);
        let sets =
            worse(&["train.eval_every=2", "checkpoint.keep_last=1", "checkpoint.keep_best=2", asynchronous]);
        run.train(1, &sets).unwrap();
        let losses: Vec<_> = run.epochs().into_iter().map(|(_, step, _, val)| (step, val)).collect();
        let evaluated: Vec<u64> = losses.iter().filter(|l| l.1.is_some()).map(|l| l.0).collect();
        assert_eq!(evaluated, [8, 16, 24]);
        assert!(losses[1].1 < losses[3].1 && losses[3].1 < losses[5].1, "{losses:?}");
        assert_eq!(run.kept(), [8, 16, 24]);
    }
}

#[test]
fn a_save_in_an_epochs_last_step_waits_for_the_evaluation_and_is_ranked_by_it() {
    for every in ["save_every=2 steps", "save_every=0.0001 ms"] {
        let run = TestRun::new(SPEC);
        run.train(1, &worse(&[every, "checkpoint.keep_last=1"])).unwrap();
        assert_eq!(run.kept(), [4, 24], "{every}");
        let state = read_state(&run.store().list().unwrap()[0].path).unwrap();
        assert_eq!((state.epochs_completed, state.step_in_epoch), (1, 0));
        assert_eq!(state.metric("val.loss"), run.epochs()[0].3);
    }
}

/// Whatever `save_every` says, unless it is "never" or no best checkpoint is kept. A resumed run knows how good the best one was.
#[test]
fn an_epoch_that_is_the_best_so_far_is_saved() {
    let sets = worse(&["save_every=24 steps", "checkpoint.keep_last=1"]);
    let (whole, resumed) = (TestRun::new(SPEC), TestRun::new(SPEC));
    whole.train(2, &sets).unwrap();
    assert_eq!(whole.kept(), [2, 12]);
    assert_eq!(resumed.until(2, &sets, 7).unwrap(), TrainingEnd::Stopped);
    assert_eq!(resumed.kept(), [2, 7]);
    resumed.train(2, &sets).unwrap();
    resumed.assert_same(&whole);
    assert_eq!(resumed.kept(), [2, 12]);
    for (forbids, kept) in [("checkpoint.keep_best=0", vec![12]), ("save_every=never", vec![])] {
        let run = TestRun::new(SPEC);
        run.train(2, &[&sets[..], &[forbids]].concat()).unwrap();
        assert_eq!(run.kept(), kept, "{forbids}");
    }
}

#[test]
fn the_training_loss_ranks_by_the_epoch_that_ended_there() {
    let run = TestRun::new(SPEC);
    run.train(1, &worse(&["checkpoint.keep_last=1", "checkpoint.best=train.loss", "dataset.val_split=0.0"]))
        .unwrap();
    let (first, kept) = (run.epochs()[0], run.kept());
    assert_eq!((kept.len(), kept[0]), (2, first.1));
    let state = read_state(&run.store().list().unwrap()[0].path).unwrap();
    assert_eq!(state.metric("train.loss"), Some(first.2));
}

/// A stop saves without waiting for the evaluation; the resumed run evaluates the same weights and saves again.
#[test]
fn a_save_of_a_stop_in_an_epochs_last_step_is_evaluated_on_resume() {
    let (whole, run) = (TestRun::new(SPEC), TestRun::new(SPEC));
    let sets = worse(&["checkpoint.keep_last=1"]);
    whole.train(1, &sets).unwrap();
    assert_eq!(run.until(1, &sets, 4).unwrap(), TrainingEnd::Stopped);
    let state = |run: &TestRun| read_state(&run.store().list().unwrap()[0].path).unwrap();
    assert_eq!((state(&run).global_step, state(&run).metric("val.loss")), (4, None));
    run.train(1, &sets).unwrap();
    assert_eq!(run.kept(), [4, 24]);
    assert_eq!(state(&run).metric("val.loss"), state(&whole).metric("val.loss"));
    run.assert_same(&whole);
}

/// What the spec can't know about its data is checked when the data is open.
#[test]
fn rejects_a_metric_that_the_targets_do_not_have() {
    let dir = tempfile::tempdir().unwrap();
    let rows: String = (0..40).map(|i| format!("{i},{}\n", ["a", "b"][i % 2])).collect();
    let path = dir.path().join("data.csv");
    std::fs::write(&path, format!("x,y\n{rows}")).unwrap();
    let spec = format!(
        "name = \"csv\"\nbatch_size = 4\n[model]\nname = \"linear\"\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n\
         [dataset]\nname = \"csv\"\npath = {path:?}\ntarget = \"y\"\ntask = \"classification\"\n"
    );
    let refused = |best: &str| {
        let run = TestRun::new(&spec);
        run.train(1, &[&format!("checkpoint.best={best}")]).map(drop).map_err(|e| (e.kind, e.message))
    };
    let (code, message) = refused("val.r2").unwrap_err();
    assert_eq!(
        (code, message.as_str()),
        (ErrorKind::Spec, "`val.r2` needs numbers as targets; the data set's targets are classes")
    );
    assert!(refused("val.top5").unwrap_err().1.contains("of 2 classes is always 1"));
    assert_eq!(refused("val.accuracy"), Ok(()));
    // Nobody would notice that the run never ends early.
    let waits = |split: &str| {
        let sets = ["early_stop.patience=1", &format!("dataset.val_split={split}")];
        TestRun::new(&spec).train(1, &sets).map(drop).map_err(|e| (e.kind, e.message))
    };
    let (code, message) = waits("0.0").unwrap_err();
    assert_eq!(code, ErrorKind::Spec);
    assert!(
        message.starts_with("`metric` in `[early_stop]` is `val.loss`, which is never measured"),
        "{message}"
    );
    assert_eq!(waits("0.1"), Ok(()));
}
