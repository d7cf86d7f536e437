//! SIGSTOP: a rank that lives on in silence. Only a deadline ends that.

use crate::trial::*;
use std::time::Duration;

pub fn a_stopped_rank_ends_the_run_at_the_deadline(busy: Busy) {
    let cases =
        [(2, 0, "forward", 12), (2, 1, "all_reduce", 12), (4, 3, "forward", 13), (4, 0, "all_reduce", 12)];
    busy.at_once(cases, |(world, rank, moment, timeout), busy| {
        let trial = Trial::new(world);
        let what = format!("rank {rank} of {world} stopped in {moment}");
        // Long enough that a rank which is only slow answers in time.
        let timeout_flag = format!("distributed.timeout={timeout}");
        let flags = ["--set", &timeout_flag, "--set", SHUTDOWN];
        let fault = format!("stop:rank={rank},phase={moment},step=3");
        let ended = trial.hang(rank, &fault, &flags, busy);
        assert_eq!(ended.code, Some(91), "{what}: {}", ended.told);
        trial.assert_struck(rank);
        assert!(ended.told.contains(&format!("error: rank {rank} of {world} ")), "{what}: {}", ended.told);
        // Whoever was first in the call has waited the whole time; the others hear of it from that one.
        let waited = (0..world).filter_map(|other| trial.waited(other)).max();
        assert!(waited >= Some(Duration::from_secs(timeout)), "{what}: {waited:?}");
        for other in (0..world).filter(|other| *other != rank) {
            let record = trial.record(other).unwrap_or_else(|| panic!("{what}: rank {other} left no record"));
            assert_eq!(record["step"], 3, "{what}: {record}");
            let phase = record["phase"].as_str().unwrap_or_default();
            assert!(matches!(phase, "backward" | "sync"), "{what}: {record}");
            assert_eq!(record["error"]["kind"], "timeout", "{what}: {record}");
            assert_eq!(record["error"]["peer"], rank, "{what}: {record}");
            let calls = record["collectives"].as_array().expect("calls");
            let last = calls.last().expect("the one that failed");
            assert_eq!(last["operation"], "all_reduce", "{what}: {record}");
            assert!(last["took_seconds"].is_null() && last["place"]["step"] == 3, "{what}: {record}");
            assert!(
                calls[..calls.len() - 1].iter().all(|c| c["took_seconds"].is_number()),
                "{what}: {record}"
            );
        }
        assert!(trial.record(rank).is_none(), "{what}: a rank without an error writes nothing");
        trial.assert_nothing_is_left(&what);
    });
}

pub fn a_rank_stopped_before_the_rendezvous_ends_the_run_at_init_timeout(busy: Busy) {
    busy.at_once([(2, 0), (2, 1), (4, 2), (4, 3)], |(world, rank), busy| {
        let trial = Trial::new(world);
        let what = format!("rank {rank} of {world} stopped before the rendezvous");
        let fault = format!("stop:rank={rank},phase=connect");
        let ended =
            trial.hang(rank, &fault, &["--set", "distributed.init_timeout=12", "--set", SHUTDOWN], busy);
        assert_eq!(ended.code, Some(93), "{what}: {}", ended.told);
        trial.assert_struck(rank);
        assert!(ended.took >= Duration::from_secs(12), "{what}: took {:?}\n{}", ended.took, ended.told);
        let hung = format!("error: rank {rank} of {world} ");
        assert!(ended.told.contains(&hung), "{what}: {}", ended.told);
        trial.assert_nothing_is_left(&what);
    });
}

pub fn a_finished_run_is_done_even_if_a_rank_hangs_while_exiting(busy: Busy) {
    busy.at_once([(2, 1), (4, 2)], |(world, rank), busy| {
        let trial = Trial::new(world);
        let what = format!("rank {rank} of {world} stopped when all was trained");
        let fault = format!("stop:rank={rank},phase=finish");
        // Nobody waits for a save with this deadline.
        let flags = ["--set", "distributed.timeout=12", "--set", "save_every=\"100 steps\""];
        let ended = trial.hang(rank, &fault, &flags, busy);
        assert_eq!(ended.code, Some(0), "{what}: {}", ended.told);
        trial.assert_struck(rank);
        assert!(ended.told.contains("the run is complete and saved"), "{what}: {}", ended.told);
        trial.assert_nothing_is_left(&what);
    });
}

pub fn a_rank_stopped_while_texts_are_generated_is_blamed_at_the_deadline(busy: Busy) {
    busy.at_once([(2, 0), (3, 2)], |(world, rank), busy| {
        let trial = Trial::of_text(world);
        let what = format!("rank {rank} of {world} stopped while texts are generated");
        let fault = format!("stop:rank={rank},phase=generate");
        let ended = trial.hang(rank, &fault, &["--set", "distributed.timeout=12", "--set", SHUTDOWN], busy);
        assert_eq!(ended.code, Some(91), "{what}: {}", ended.told);
        trial.assert_struck(rank);
        assert!(ended.told.contains(&format!("error: rank {rank} of {world} ")), "{what}: {}", ended.told);
        for other in (0..world).filter(|other| *other != rank) {
            let record = trial.record(other).unwrap_or_else(|| panic!("{what}: rank {other} left no record"));
            assert_eq!((&record["phase"], &record["error"]["kind"]), (&"generate".into(), &"timeout".into()));
            assert_eq!(record["error"]["peer"], rank, "{what}: {record}");
        }
        trial.assert_nothing_is_left(&what);
    });
}
