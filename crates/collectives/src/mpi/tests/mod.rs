//! Ranks as processes under `mpirun`: each test starts this test binary once per rank, to run the `case` of its name in
//! `rank::rank`. `DDP_RUN_MPIRUN` selects the launcher, which must be that of the MPI in this build.

mod launch;
mod rank;

use launch::run;

fn is_open_mpi() -> bool {
    super::status().is_ok_and(|version| version.contains("Open MPI"))
}

/// All ranks succeed: exit code 0, and every rank reports `done`.
fn succeeds(case: &str, world: usize) {
    if let Some(outcome) = run(case, world) {
        assert_eq!(outcome.code, Some(0), "{case}, world {world}:\n{}", outcome.output);
        assert!(outcome.said.iter().all(|s| s.as_deref() == Some("done")), "{case}: {:?}", outcome.said);
    }
}

/// Every rank in `ranks` fails with a text that contains all of `says`; the others are killed. Open MPI's `mpirun` ends
/// with 91; MPICH's ends with 9 if it has killed a rank that was slower to end than the first.
#[track_caller]
fn fails(case: &str, world: usize, ranks: &[usize], says: &[&str]) {
    let Some(outcome) = run(case, world) else { return };
    for rank in ranks {
        let said = outcome.said[*rank].as_deref().unwrap_or_default();
        for part in says {
            assert!(said.contains(part), "{case}, rank {rank}: no `{part}` in `{said}`\n{}", outcome.output);
        }
    }
    let expected: &[i32] = if is_open_mpi() { &[91] } else { &[91, 9] };
    assert!(
        outcome.code.is_some_and(|c| expected.contains(&c)),
        "{case}: {:?}\n{}",
        outcome.code,
        outcome.output
    );
}

#[test]
fn worlds_of_one_to_four_agree_with_the_reference() {
    (1..=4).for_each(|world| succeeds("reference", world));
}

#[test]
fn buffers_of_many_chunks_agree_with_the_reference() {
    succeeds("large", 2);
    succeeds("large", 3);
}

#[test]
fn means_are_exact_halves_are_rounded_once_and_nan_wins() {
    succeeds("arithmetic", 2);
    succeeds("arithmetic", 4);
}

/// Sums that depend on the order of operands: the ranks must agree to the bit, and so must a second run.
#[test]
fn results_are_the_same_bits_on_all_ranks_and_in_every_run() {
    for world in [2, 3, 4] {
        let (Some(first), Some(second)) = (run("order", world), run("order", world)) else { return };
        assert_eq!((first.code, second.code), (Some(0), Some(0)), "{}{}", first.output, second.output);
        let digest = first.said[0].clone().expect("rank 0 says a digest");
        assert!(first.said.iter().chain(&second.said).all(|s| *s == Some(digest.clone())), "world {world}");
    }
}

#[test]
fn calls_are_recorded_and_threads_take_turns() {
    succeeds("record", 2);
    succeeds("threads", 2);
}

#[test]
fn a_rank_that_leaves_late_is_waited_for() {
    succeeds("late", 3);
}

#[test]
fn mismatched_calls_fail_and_the_deviating_rank_is_named() {
    let says = ["Mismatch", "peer 2", "rank 0 called all_reduce #2 (sum of 1000 f32), rank 2"];
    fails("other-count", 3, &[0, 1, 2], &says);
    fails("other-operation", 3, &[0, 1, 2], &says);
    fails("other-message", 2, &[0, 1], &["Mismatch", "recv #1 (5 f32 from rank 0, tag 9)", "send #1 (4 f32"]);
}

#[test]
fn an_invalid_call_fails_all_ranks() {
    fails(
        "misuse",
        3,
        &[0, 1, 2],
        &["Misuse", "peer 1", "rank 1 made an invalid call: all_reduce: mean is not defined for i32"],
    );
}

#[test]
fn an_abort_is_reported_at_once_by_all() {
    fails("abort", 3, &[0, 1, 2], &["Aborted", "peer 1", "rank 1 aborted: disk full"]);
}

#[test]
fn an_abort_from_another_thread_ends_the_call_that_runs() {
    fails("abort-beside", 2, &[0, 1], &["Aborted", "peer 0", "rank 0 aborted: from beside"]);
}

#[test]
fn a_rank_that_left_early_is_blamed() {
    fails(
        "left",
        2,
        &[0],
        &["PeerLost", "peer 1", "rank 1 left the process group while rank 0 still needed it"],
    );
}

#[test]
fn a_stopped_rank_is_named_at_the_deadline() {
    fails("stopped", 3, &[0, 1], &["Timeout", "peer 2", "rank 2 did not respond", "was in all_reduce #2"]);
}

#[test]
fn a_rank_that_stops_during_a_transfer_is_blamed() {
    fails("stopped-within", 2, &[0], &["Timeout", "peer 1", "rank 1 did not respond"]);
}

#[test]
fn ranks_that_wait_for_each_other_report_their_calls() {
    fails("crossed", 2, &[0, 1], &["Timeout", "no progress after 1s (timeout)", "rank 0", "rank 1"]);
}

#[test]
fn a_killed_rank_ends_the_others() {
    let Some(outcome) = run("killed", 3) else { return };
    assert_ne!(outcome.code, Some(0), "{}", outcome.output);
    // Ended by mpirun, not by a deadline.
    assert!(outcome.said.iter().flatten().all(|s| !s.contains("Timeout")), "{:?}", outcome.said);
}

#[test]
fn ranks_with_different_plans_or_another_environment_do_not_start() {
    let cases: [(&str, &[&str]); 2] = [
        ("other-plan", &["Rendezvous, peer 1", "rank 1 has a different plan (b) from rank 0"]),
        ("other-rank", &["Rendezvous", "the environment says rank", "of 2, but MPI says rank"]),
    ];
    for (case, says) in cases {
        let Some(outcome) = run(case, 2) else { return };
        assert_ne!(outcome.code, Some(0), "{}", outcome.output);
        // Both report it; the end of the first one may kill the other before it can.
        let said = outcome.said.into_iter().flatten().next().expect("one rank says why");
        assert!(says.iter().all(|part| said.contains(part)), "{said}");
    }
}
