//! SIGSTOP to a rank that has nothing left to do but to exit. It waits for half a minute beside other tests,
//! which begin in the order of their names: by its name it is among the first.

use crate::common::*;
use crate::trial::*;
use std::sync::mpsc;

#[test]
fn a_finished_run_is_done_even_if_a_rank_hangs_while_exiting() {
    let alone = alone();
    let (waits, all_wait) = mpsc::channel::<()>();
    let play = |world: usize, rank: usize, waits: mpsc::Sender<()>| {
        let trial = Trial::new(world);
        let what = format!("rank {rank} of {world} stopped when all was trained");
        let fault = format!("stop:rank={rank},phase=finish");
        let mut run = trial.start(&fault, &["--set", "distributed.timeout=8"]);
        run.says("the run is complete and saved");
        drop(waits);
        let ended = run.end();
        assert_eq!(ended.code, Some(0), "{what}: {}", ended.told);
        trial.assert_struck(rank);
        assert!(ended.told.contains("the run is complete and saved"), "{what}: {}", ended.told);
        trial.assert_nothing_is_left(&what);
    };
    std::thread::scope(|scope| {
        for (world, rank) in [(2, 1), (4, 2)] {
            let waits = waits.clone();
            scope.spawn(move || play(world, rank, waits));
        }
        drop(waits);
        // From here on they wait for half a minute to pass: other tests may have the machine.
        let _ = all_wait.recv();
        drop(alone);
    });
}
