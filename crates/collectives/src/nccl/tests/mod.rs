//! Ranks as processes: each test starts this test binary once per rank, to run the `case` of its name in `rank::rank`,
//! with the tests' own libcuda and libnccl (`tests/fake_cuda`), built by the C compiler. With DDP_RUN_REAL_NCCL=1, the
//! cases that make sense there run on the machine's own GPU and NCCL.

mod gpu;
mod launch;
mod rank;

use launch::{Launch, Libraries};

/// Every rank reports `done`.
#[track_caller]
fn succeeds(launch: Launch) -> Option<launch::Outcome> {
    let outcome = launch.run()?;
    assert!(outcome.said.iter().all(|s| s.as_deref() == Some("done")), "{outcome}");
    Some(outcome)
}

/// Every rank in `ranks` fails with a text that contains all of `says`.
#[track_caller]
fn fails(launch: Launch, ranks: &[usize], says: &[&str]) -> Option<launch::Outcome> {
    let outcome = launch.run()?;
    for rank in ranks {
        let said = outcome.said[*rank].as_deref().unwrap_or_default();
        for part in says {
            assert!(said.contains(part), "rank {rank}: no `{part}` in `{said}`\n{outcome}");
        }
    }
    Some(outcome)
}

/// Number of lines in a rank's log that equal `line`.
fn count(outcome: &launch::Outcome, rank: usize, line: &str) -> usize {
    outcome.logs[rank].lines().filter(|l| *l == line).count()
}

#[test]
fn sums_means_and_extremes_are_right_and_shutdown_is_clean() {
    for world in 1..=3 {
        let Some(outcome) = succeeds(Launch::new("sums", world).on_a_gpu_too()) else { return };
        for rank in (0..world).filter(|_| outcome.is_fake) {
            let lines = |line| count(&outcome, rank, line);
            assert_eq!((lines("ncclCommFinalize"), lines("ncclCommDestroy")), (1, 1), "{outcome}");
            // The group's and the case's.
            let references = (lines("cuDevicePrimaryCtxRetain"), lines("cuDevicePrimaryCtxRelease"));
            assert_eq!(references, (2, 2), "{outcome}");
            assert_eq!(count(&outcome, rank, "ncclCommAbort"), 0, "{outcome}");
            assert_eq!(count(&outcome, rank, "cuCtxSynchronize"), 0, "nobody waits on the host: {outcome}");
        }
    }
}

/// The host does not wait; earlier work, the collective and later work wait for each other.
#[test]
fn collectives_come_after_what_was_launched_and_before_what_is_launched_after_the_fence() {
    let Some(outcome) = succeeds(Launch::new("order", 2).on_a_gpu_too()) else { return };
    for log in outcome.logs.iter().filter(|_| outcome.is_fake) {
        let at = |line: &str| {
            log.lines().position(|l| l == line).unwrap_or_else(|| panic!("no {line}: {outcome}"))
        };
        let launched = at("ncclAllReduce 1");
        let before: Vec<&str> = log.lines().take(launched).collect();
        // The first two are from the engine's test of the driver.
        assert!(before.ends_with(&["cuCtxRecordEvent", "cuStreamWaitEvent"]), "{outcome}");
        let after: Vec<&str> =
            log.lines().skip(launched + 1).filter(|l| !l.starts_with("all-reduce")).collect();
        assert_eq!(after[..2], ["cuEventRecord", "cuCtxWaitEvent"], "{outcome}");
    }
}

#[test]
fn without_context_events_the_host_waits_for_the_driver() {
    let Some(outcome) = succeeds(Launch::new("sums", 2).with(Libraries::OldDriver)) else { return };
    assert!(outcome.said.len() == 2 && count(&outcome, 0, "cuCtxSynchronize") > 0, "{outcome}");
    assert_eq!(count(&outcome, 0, "cuCtxRecordEvent"), 0);
    let copies = Launch::new("sums", 2).set(0, "NCCL_P2P_USE_CUDA_MEMCPY", "1");
    let Some(outcome) = succeeds(copies) else { return };
    assert_eq!(
        (count(&outcome, 0, "cuCtxWaitEvent"), count(&outcome, 1, "cuCtxSynchronize")),
        (0, 0),
        "{outcome}"
    );
}

#[test]
fn a_buffers_guard_lives_until_the_device_is_done_with_it() {
    succeeds(Launch::new("guard", 2).on_a_gpu_too());
}

#[test]
fn calls_of_both_kinds_are_recorded() {
    succeeds(Launch::new("history", 2));
}

#[test]
fn a_collective_that_never_completes_fails_at_the_deadline_on_all_ranks() {
    let launch = Launch::new("hang", 2).set(1, "FAKE_NCCL_HANG", "2");
    let says = ["Timeout", "all_reduce #2 (sum of 1000 f32) by NCCL did not complete within 5s (timeout)"];
    let Some(outcome) = fails(launch, &[0, 1], &says) else { return };
    assert!((0..2).all(|rank| count(&outcome, rank, "ncclCommAbort") == 1), "{outcome}");
    assert!(
        outcome.said.iter().flatten().all(|s| s.contains("all ranks respond and have made this call")),
        "{outcome}"
    );
}

#[test]
fn a_collective_that_is_never_enqueued_fails_at_the_deadline() {
    let launch = Launch::new("hang", 2).set(0, "FAKE_NCCL_STUCK", "2");
    fails(
        launch,
        &[0, 1],
        &["Timeout", "all_reduce #2 (sum of 1000 f32) by NCCL did not complete within 5s"],
    );
}

/// The communicator is aborted while the call hangs.
#[test]
fn an_nccl_call_that_does_not_return_fails_at_the_deadline() {
    let launch = Launch::new("hang", 2).set(0, "FAKE_NCCL_BLOCK", "2");
    let says = ["Timeout", "all_reduce #2 (sum of 1000 f32) by NCCL did not complete within 5s"];
    let Some(outcome) = fails(launch, &[0, 1], &says) else { return };
    assert!((0..2).all(|rank| count(&outcome, rank, "ncclCommAbort") == 1), "{outcome}");
}

#[test]
fn a_rank_that_does_not_enter_a_collective_is_blamed() {
    let says = [
        "Timeout, peer 1",
        "is waiting for rank 1 to make this call",
        "rank 1 has made call 1, step 7, phase data",
    ];
    fails(Launch::new("late", 3).on_a_gpu_too(), &[0, 1, 2], &says);
}

#[test]
fn a_stopped_rank_is_named_at_the_deadline() {
    fails(Launch::new("stopped", 3), &[0, 2], &["Timeout, peer 1", "rank 1 did not respond"]);
}

#[test]
fn a_killed_rank_is_named_long_before_the_deadline() {
    let launch = Launch::new("killed", 3).on_a_gpu_too();
    let says = [
        "PeerLost, peer 1",
        "rank 1 disconnected",
        "all_reduce #2 (sum of 1000 f32) by NCCL, step 7, phase sync",
    ];
    fails(launch, &[0, 2], &says);
}

/// NCCL only detects that some rank is gone.
#[test]
fn a_peer_that_nccl_reports_as_lost_is_named_if_it_disconnected() {
    let launch = Launch::new("missed", 3).set(0, "FAKE_NCCL_LOST", "2");
    fails(launch, &[0, 2], &["PeerLost, peer 1", "rank 1 disconnected"]);
}

/// NCCL on rank 0 reports a lost peer, but all are alive: the failure is rank 0's own.
#[test]
fn a_failure_of_nccl_ends_the_group_on_all_ranks() {
    let launch = Launch::new("lost", 2).set(0, "FAKE_NCCL_LOST", "2");
    let says = ["Aborted, peer 0", "rank 0 aborted: NCCL: remote process exited", "said the fake"];
    let Some(outcome) = fails(launch, &[0, 1], &says) else { return };
    assert!((0..2).all(|rank| count(&outcome, rank, "ncclCommAbort") == 1), "{outcome}");
}

#[test]
fn an_abort_ends_the_collectives_of_the_other_ranks() {
    fails(Launch::new("abort", 2).on_a_gpu_too(), &[0, 1], &["Aborted, peer 0", "rank 0 aborted: disk full"]);
}

#[test]
fn a_failed_call_of_the_control_group_ends_the_device_group() {
    let launch = Launch::new("control", 2);
    let Some(outcome) = fails(launch, &[0, 1], &["Mismatch", "collective calls do not match"]) else {
        return;
    };
    assert!((0..2).all(|rank| count(&outcome, rank, "ncclCommAbort") == 1), "{outcome}");
}

#[test]
fn an_invalid_call_fails_all_ranks() {
    let launch = Launch::new("misuse", 2);
    fails(launch, &[0, 1], &["peer 1", "made an invalid call: all_reduce: mean is not defined for i32"]);
}

#[test]
fn a_rank_that_never_joins_fails_the_start_at_the_deadline() {
    let launch = Launch::new("join", 2).set(1, "FAKE_NCCL_INIT", "never");
    let says =
        ["Rendezvous: ", "NCCL initialization did not complete within 1s (timeout): all ranks respond"];
    let Some(outcome) = fails(launch, &[0, 1], &says) else { return };
    assert!((0..2).all(|rank| count(&outcome, rank, "ncclCommAbort") == 1), "{outcome}");
}

#[test]
fn a_rank_that_fails_to_join_is_named_by_all() {
    let launch = Launch::new("join-fails", 3).set(2, "FAKE_NCCL_INIT", "fail");
    fails(launch, &[0, 1, 2], &["Collective: ", "rank 2 aborted: NCCL: internal error"]);
}

#[test]
fn ranks_with_one_gpu_are_refused_unless_their_host_ids_differ() {
    let shared = || Launch::new("sums", 2).set(0, "FAKE_CUDA_UUID", "7").set(1, "FAKE_CUDA_UUID", "7");
    let says = ["Unavailable: ", "ranks 0 and 1 have the same GPU, GPU-00000000-0000-0000-0000-000000000007"];
    fails(shared(), &[0, 1], &says);
    succeeds(shared().set(0, "NCCL_HOSTID", "a").set(1, "NCCL_HOSTID", "b"));
}

/// Every rank needs the UUID at each start; CubeCL creates the context again.
#[test]
fn the_uuid_is_read_without_a_context() {
    let launch = Launch::new("uuid", 1).set(0, "FAKE_CUDA_UUID", "7");
    let Some(outcome) = launch.run() else { return };
    assert_eq!(outcome.said[0].as_deref(), Some("GPU-00000000-0000-0000-0000-000000000007"), "{outcome}");
    assert_eq!(count(&outcome, 0, "cuDevicePrimaryCtxRetain"), 0, "{outcome}");
}

#[test]
fn ranks_with_different_versions_of_nccl_are_refused() {
    let launch = Launch::new("sums", 2).set(1, "FAKE_NCCL_VERSION", "22107");
    fails(launch, &[0, 1], &["Unavailable: ", "rank 0 has 2.27.3, rank 1 has 2.21.7"]);
}

#[test]
fn missing_libraries_of_a_rank_are_reported_by_all() {
    let missing = [
        (Libraries::NoNccl, "rank 1: NCCL was not found: libnccl.so.2: "),
        (Libraries::NoDriver, "rank 1: the CUDA driver was not found: no libcuda.so.1"),
        (Libraries::OldNccl, "rank 1: NCCL has no ncclCommInitRankConfig: 2.18 or later is required"),
    ];
    for (libraries, says) in missing {
        // On a machine with the real libraries, none is missing.
        if libraries == Libraries::OldNccl || super::status().is_err() {
            fails(Launch::new("sums", 2).with_on(1, libraries), &[0, 1], &["Unavailable: ", says]);
        }
    }
    let launch = Launch::new("sums", 2).set(1, "FAKE_CUDA_INIT", "100");
    fails(
        launch,
        &[0, 1],
        &[
            "Unavailable: ",
            "rank 1: the CUDA driver failed to start: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-cap",
        ],
    );
    let launch = Launch::new("sums", 2).set(0, "DDP_RUN_NCCL_DEVICE", "1");
    fails(launch, &[0, 1], &["Unavailable: ", "rank 0: CUDA device 1 does not exist: this process sees 1"]);
    let launch = Launch::new("sums", 2).set(0, "FAKE_NCCL_VERSION", "21400");
    fails(launch, &[0, 1], &["Unavailable: ", "rank 0: NCCL is version 2.14.0; 2.18 or later is required"]);
}

#[test]
fn the_status_contains_the_nccl_version() {
    let Some(outcome) = Launch::new("status", 1).run() else { return };
    assert_eq!(outcome.said[0].as_deref(), Some("Ok(\"NCCL 2.27.3\")"), "{outcome}");
}
