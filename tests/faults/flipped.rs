//! A bit that flips on one rank without an error: `distributed.check_replicas`.

use crate::common::*;
use crate::restarted::restarts;
use crate::trial::*;
use serde_json::json;

/// A run that fails waits only a second for a save on the side, and all is to begin from the checkpoint before the flip.
const CHECK: [&str; 4] =
    ["--set", "distributed.check_replicas=\"1 step\"", "--set", "checkpoint.async=false"];

fn divergences(trial: &Trial) -> Vec<serde_json::Value> {
    events(&trial.out).into_iter().filter(|e| e["event"] == "divergence").collect()
}

#[test]
fn the_majority_names_the_rank_and_the_run_ends_in_the_same_bits() {
    let _alone = alone();
    let whole = Trial::new(3);
    assert_eq!(whole.run("", &[]).code, Some(0));
    for rank in 0..3 {
        let trial = Trial::new(3);
        let fault = format!("flip:rank={rank},phase=update,step=3,generation=1");
        let ended = trial.run(&fault, &[&CHECK[..], &["--max-restarts", "1"]].concat());
        assert_eq!((ended.code, restarts(&ended.told)), (Some(0), 1), "{}", ended.told);
        let named = format!("silent data corruption on rank {rank}: after step 4");
        assert!(ended.told.contains(&named), "{}", ended.told);
        let told = divergences(&trial);
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (&told[0]["ranks"], &told[0]["by"], &told[0]["step"], &told[0]["agreed"]),
            (&json!([rank]), &"majority".into(), &4.into(), &3.into())
        );
        assert!(told[0]["tensor"].as_str().is_some_and(|name| name.starts_with("parameter ")), "{told:?}");
        assert!(trial.bits() == whole.bits(), "rank {rank}: model or optimizer differ");
        assert_eq!(results(&trial.out), results(&whole.out));
        trial.assert_nothing_is_left(&fault);
    }
}

/// Its gradient was wrong then, so that after the average no rank has the right state.
#[test]
fn a_flip_before_the_passes_is_undone_although_no_rank_was_right() {
    let _alone = alone();
    let whole = Trial::new(2);
    assert_eq!(whole.run("", &[]).code, Some(0));
    for rank in 0..2 {
        let trial = Trial::new(2);
        let fault = format!("flip:rank={rank},phase=forward,step=3,generation=1");
        // Nothing is due before the save after step 4, which is not made then.
        let flags = ["--set", "distributed.check_replicas=\"100 steps\"", "--max-restarts", "1"];
        let ended = trial.run(&fault, &[&flags[..], &["--set", "checkpoint.async=false"]].concat());
        assert_eq!((ended.code, restarts(&ended.told)), (Some(0), 1), "{}", ended.told);
        assert!(ended.told.contains("no state has a majority"), "{}", ended.told);
        assert!(ended.told.contains("generation 2, resumes at step 2"), "{}", ended.told);
        let told = divergences(&trial);
        let by: Vec<_> = told.iter().map(|event| (&event["ranks"], &event["by"])).collect();
        assert_eq!(by[0], (&json!([]), &serde_json::Value::Null), "{told:?}");
        assert!(trial.bits() == whole.bits(), "rank {rank}: model or optimizer differ");
        trial.assert_nothing_is_left(&fault);
    }
}

#[test]
fn of_two_ranks_the_repeated_step_tells_which_was_wrong() {
    let _alone = alone();
    for rank in 0..2 {
        let trial = Trial::new(2);
        let fault = format!("flip:rank={rank},phase=update,step=3,generation=1");
        let ended = trial.run(&fault, &[&CHECK[..], &["--max-restarts", "1"]].concat());
        assert_eq!(ended.code, Some(0), "{}", ended.told);
        let told = divergences(&trial);
        assert_eq!(told.len(), 2, "{told:?}");
        assert_eq!((&told[1]["ranks"], &told[1]["by"]), (&json!([rank]), &"repetition".into()), "{told:?}");
        let named =
            format!("silent data corruption on rank {rank}: the repeated step 4 has the state of the others");
        assert!(ended.told.contains(&named), "{}", ended.told);
    }
}

#[test]
fn without_a_restart_the_run_ends_with_94_and_saves_nothing_of_it() {
    let _alone = alone();
    let trial = Trial::new(3);
    let ended = trial.run("flip:rank=1,phase=update,step=3", &CHECK);
    assert_eq!(ended.code, Some(94), "{}", ended.told);
    assert!(ended.told.contains("error: rank 1 of 3 "), "{}", ended.told);
    assert!(newest_checkpoint(&trial.out).ends_with("step-00000002"));
    trial.assert_nothing_is_left("94");
    // The same command goes on.
    assert_eq!(trial.run("", &CHECK).code, Some(0));
}

#[test]
fn without_the_check_a_flip_goes_unnoticed() {
    let _alone = alone();
    let whole = Trial::new(2);
    assert_eq!(whole.run("", &[]).code, Some(0));
    let trial = Trial::new(2);
    assert_eq!(trial.run("flip:rank=0,phase=update,step=3", &[]).code, Some(0));
    assert!(trial.bits() != whole.bits(), "the fault changes nothing");
    assert_eq!(divergences(&trial).len(), 0);
}
