//! Workers that die and are started again by their supervisor: `--max-restarts`.

use crate::common::*;
use crate::trial::*;

/// How often the supervisor says that it starts the workers again.
pub fn restarts(told: &str) -> usize {
    told.lines().filter(|l| l.starts_with("attempt ")).count()
}

#[test]
fn a_rank_that_dies_once_is_restarted_with_the_same_bits() {
    let _alone = alone();
    for (world, moments) in
        [(1, &["forward,step=3"][..]), (2, &["connect", "forward,step=3", "save,step=4", "barrier"])]
    {
        let whole = Trial::new(world);
        assert_eq!(whole.run("", &[]).code, Some(0));
        for (rank, moment) in (0..world).flat_map(|rank| moments.iter().map(move |m| (rank, m))) {
            let what = format!("rank {rank} of {world} dies at {moment}");
            let trial = Trial::new(world);
            let fault = format!("kill:rank={rank},phase={moment},generation=1");
            let ended = trial.run(&fault, &["--max-restarts", "1"]);
            assert_eq!(ended.code, Some(0), "{what}: {}", ended.told);
            let (died, again) =
                ended.told.split_once("\nattempt ").unwrap_or_else(|| panic!("{what}: {}", ended.told));
            let died = died.lines().last().unwrap_or_default();
            assert!(
                died.starts_with(&format!("rank {rank} of {world} ")) && died.contains("SIGKILL"),
                "{what}: {died}"
            );
            let again = again.lines().next().unwrap_or_default();
            // Whether the checkpoint of step 2 was on the disk by then is a matter of luck.
            let (anew, later) =
                ("2/2, generation 2, starts from the beginning", "2/2, generation 2, resumes at step ");
            let continues = match *moment {
                // The first barrier comes before the data is read.
                "connect" | "barrier" => again.starts_with(anew),
                _ => again.starts_with(anew) || again.starts_with(later),
            };
            assert!(continues, "{what}: {again}");
            assert!(trial.bits() == whole.bits(), "{what}: model or optimizer differ");
            assert_eq!(results(&trial.out), results(&whole.out), "{what}");
            let restart = events(&trial.out).into_iter().find(|e| e["event"] == "restart");
            let restart = restart.unwrap_or_else(|| panic!("{what}: the metrics know nothing of it"));
            assert_eq!((&restart["attempt"], &restart["reason"]), (&2.into(), &died.into()), "{what}");
            trial.assert_nothing_is_left(&what);
        }
    }
}

#[test]
fn restarts_without_progress_are_limited() {
    let _alone = alone();
    let trial = Trial::new(2);
    // In each generation, before there is a checkpoint.
    let ended = trial.run("kill:rank=1,phase=forward,step=1", &["--max-restarts", "2"]);
    assert_eq!(ended.code, Some(90), "{}", ended.told);
    assert_eq!(restarts(&ended.told), 2, "{}", ended.told);
    assert!(ended.told.contains("\nattempt 3/3, generation 3, starts from the beginning"), "{}", ended.told);
    assert!(ended.told.contains("\nthe workers restart in 1 s\n"), "{}", ended.told);
    assert!(ended.told.contains("error: rank 1 of 2 "), "{}", ended.told);
    trial.assert_nothing_is_left("spent");
}

#[test]
fn failures_that_no_restart_fixes_are_not_retried() {
    let _alone = alone();
    for code in [2, 69, 70, 74, 78, 92] {
        let trial = Trial::new(2);
        let ended = trial.run(&format!("exit={code}:rank=1,phase=update,step=3"), &["--max-restarts", "5"]);
        assert_eq!((ended.code, restarts(&ended.told)), (Some(code), 0), "{}", ended.told);
    }
    // The real thing: a loss that is not finite.
    let trial = Trial::new(2);
    let ended = trial.run("", &["--max-restarts", "5", "--set", "optimizer.lr=1e38"]);
    assert_eq!((ended.code, restarts(&ended.told)), (Some(92), 0), "{}", ended.told);
}

#[test]
fn a_rank_that_hangs_or_exits_is_restarted() {
    let _alone = alone();
    let whole = Trial::new(2);
    assert_eq!(whole.run("", &[]).code, Some(0));
    // Nobody waits for a save with such a deadline.
    let silent = ["--set", "distributed.timeout=12", "--set", "save_every=\"100 steps\""];
    for (deed, flags) in [("stop", &silent[..]), ("exit=7", &[]), ("exit=0", &[])] {
        let trial = Trial::new(2);
        let fault = format!("{deed}:rank=1,phase=forward,step=3,generation=1");
        let ended = trial.run(&fault, &[&["--max-restarts", "1"], flags].concat());
        assert_eq!((ended.code, restarts(&ended.told)), (Some(0), 1), "{deed}: {}", ended.told);
        let blamed = ended.told.lines().any(|l| l.starts_with("rank 1 of 2 "));
        // Who ends with 0 says nothing of a failure; its peer only knows that it is gone.
        assert!(blamed || deed == "exit=0", "{deed}: {}", ended.told);
        assert!(trial.bits() == whole.bits(), "{deed}: model or optimizer differ");
        trial.assert_nothing_is_left(deed);
    }
}
