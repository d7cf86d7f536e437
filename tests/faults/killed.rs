//! SIGKILL to each rank at each moment, and what the same command does afterwards.

use crate::common::*;
use crate::trial::*;
use rustix::process::Signal;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The moments of the first and of the second pass.
const MOMENTS: [[&str; 5]; 2] = [
    ["connect", "forward,step=3", "all_reduce,step=3", "save,step=2", "barrier"],
    ["connect", "forward,step=0", "all_reduce,step=0", "save,step=4", "barrier,step=6"],
];

fn killed(trial: &Trial, rank: usize, moment: &str) {
    let (world, fault) = (trial.world, format!("kill:rank={rank},phase={moment}"));
    // Rank 0 may be saving.
    let ended = trial.run(&fault, &["--set", "launch.shutdown_timeout=60"]);
    let what = format!("{fault} at world {world}");
    assert_eq!(ended.code, Some(90), "{what}: {}", ended.told);
    trial.assert_struck(rank);
    let blamed = ended.told.contains(&format!("error: rank {rank} of {world} "));
    assert!(blamed && ended.told.contains("SIGKILL"), "{what}: {}", ended.told);
    assert!(
        !trial.out.join(format!("logs/failure-rank-{rank}.json")).exists(),
        "{what}: the dead don't write"
    );
    for other in 0..world {
        let record = trial.record(other);
        if other == rank || moment == "connect" {
            assert!(record.is_none(), "{what}: {record:?}");
            continue;
        }
        let record = record.unwrap_or_else(|| panic!("{what}: rank {other} left no record\n{}", ended.told));
        assert_eq!(record["error"]["peer"], rank, "{what}: {record}");
        assert_eq!(record["rank"], other, "{what}");
    }
    trial.assert_nothing_is_left(&what);
}

/// 14 ranks in three worlds by 5 moments, and the smaller two worlds again at other steps: 100 runs. One in four is
/// started again, and ends in the bits of a run that was never interrupted.
#[test]
fn every_rank_at_every_moment_100_times() {
    let _alone = alone();
    let begun = Instant::now();
    let (runs, resumed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let play = |world: usize, moments: [&str; 5]| {
        let whole = Trial::new(world);
        assert_eq!(whole.run("", &[]).code, Some(0));
        for (rank, moment) in (0..world).flat_map(|rank| moments.map(|moment| (rank, moment))) {
            let trial = Trial::new(world);
            killed(&trial, rank, moment);
            runs.fetch_add(1, Ordering::Relaxed);
            if rank != world / 2 {
                continue;
            }
            let what = format!("rank {rank} killed at {moment} at world {world}, and resumed");
            let ended = trial.run("", &[]);
            assert_eq!(ended.code, Some(0), "{what}: {}", ended.told);
            assert!(trial.bits() == whole.bits(), "{what}: model or optimizer differ");
            assert_eq!(results(&trial.out), results(&whole.out), "{what}");
            assert!((0..world).all(|rank| trial.record(rank).is_none()), "{what}: a record is stale");
            trial.assert_nothing_is_left(&what);
            resumed.fetch_add(1, Ordering::Relaxed);
        }
    };
    // Two rows of about the same length; with the runs of 8 ranks in one, no two of them are there at once.
    let [first, second] = MOMENTS;
    let small = [(2, first), (4, first), (2, second), (4, second)];
    at_once([&[(8, first)][..], &small], |plays| {
        plays.iter().for_each(|(world, moments)| play(*world, *moments));
    });
    let (runs, resumed) = (runs.into_inner(), resumed.into_inner());
    assert_eq!((runs, resumed), (100, 25));
    println!("{runs} runs with a kill and {resumed} resumptions took {:?}", begun.elapsed());
}

#[test]
fn a_rank_that_is_saving_has_the_shutdown_timeout_to_finish() {
    let _alone = alone();
    let trial = Trial::new(2);
    let run = trial.start("stop:rank=0,phase=save,step=2", &["--set", "launch.shutdown_timeout=600"]);
    let saving = held(&trial.out);
    run.ranks().into_iter().filter(|rank| *rank != saving).for_each(|rank| kill(rank, Signal::KILL));
    assert!(within(HUNG, || run.ranks() == [saving]), "the killed rank is still there");
    // Longer than a rank has by default.
    std::thread::sleep(Duration::from_secs(2));
    kill(saving, Signal::CONT);
    let ended = run.end();
    assert_eq!(ended.code, Some(90), "{}", ended.told);
    assert!(newest_checkpoint(&trial.out).ends_with("step-00000002"), "{}", ended.told);
    assert_eq!(trial.record(0).expect("rank 0 has lost its peer")["error"]["peer"], 1);
    trial.assert_nothing_is_left("saved at last");
}

#[test]
fn an_exit_is_named_with_its_code() {
    let _alone = alone();
    let trial = Trial::new(2);
    let ended = trial.run("exit=7:rank=1,phase=update,step=1", &["--set", "launch.shutdown_timeout=60"]);
    assert_eq!(ended.code, Some(90), "{}", ended.told);
    assert!(
        ended.told.contains("error: rank 1 of 2 ") && ended.told.contains("exited with 7"),
        "{}",
        ended.told
    );
    assert!(ended.told.contains("collectives-rank-0.json"), "the record is pointed at: {}", ended.told);
    // With 0, as a program that ends in the midst of it all: nobody may take that for the run's success.
    let trial = Trial::new(2);
    let ended = trial.run("exit=0:rank=0,phase=sync,step=1", &[]);
    assert_eq!(ended.code, Some(91), "{}", ended.told);
    assert!(ended.told.contains("error: rank 0 of 2 "), "{}", ended.told);
    trial.assert_nothing_is_left("exit 0");
}

#[test]
fn an_impossible_fault_is_rejected_before_anything_starts() {
    let _alone = alone();
    for fault in ["kill", "kill:rank=2,phase=forward", "stop:rank=0,phase=nowhere"] {
        let trial = Trial::new(2);
        let ended = trial.run(fault, &[]);
        assert_eq!(ended.code, Some(2), "{fault}: {}", ended.told);
        assert!(ended.told.contains("DDP_RUN_FAULT"), "{fault}: {}", ended.told);
        assert!(!trial.out.exists(), "{fault}");
    }
}
