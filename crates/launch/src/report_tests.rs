use super::*;
use crate::failure::Evidence;
use base::error::Error;
use collectives::{CommError, CommErrorKind, Phase, StepPhase};

const LOST: Class = Class::Failed(FailureCause::PeerLost);
const FAILED: Class = Class::Failed(FailureCause::Other);

fn end(status: WorkerStatus, requested: Requested) -> End {
    End { status, requested, order: 0, overdue: false, evidence: Evidence::default() }
}

fn killed_by(signal: i32) -> WorkerStatus {
    WorkerStatus::Signaled { signal, core_dumped: false }
}

fn rank<'a>(end: &'a End, class: Class) -> Rank<'a> {
    Rank { end: Some(end), class: Some(class), pid: Some(4711) }
}

fn context(first_rank: usize, world_size: usize, folder: &tempfile::TempDir) -> NodeContext<'_> {
    NodeContext { first_rank, world_size, log_dir: folder.path() }
}

/// Writes the note of process 4711 as `rank`, which failed with `error`.
fn note(rank: usize, error: impl Into<Error>, context: NodeContext<'_>) -> Failure {
    let note = Failure { pid: 4711, ..Failure::new(rank, &error.into()) };
    note.write(context.log_dir).expect("write");
    note
}

fn silent(rank: usize) -> CommError {
    CommError::new(CommErrorKind::Timeout, Some(rank), format!("rank {rank} did not respond"))
}

/// The report as it is printed, with a constant name of the log folder.
fn printed(failed: &NodeFailure, context: NodeContext<'_>) -> String {
    let error = Error { hint: failed.hint.clone(), ..Error::new(failed.code.error_kind(), &*failed.message) };
    error.to_string().replace(&context.log_dir.display().to_string(), "LOGS")
}

#[test]
fn a_killed_rank_is_reported_with_its_log_and_the_other_ranks() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 4, &folder);
    std::fs::write(logs::path(folder.path(), 1), "step 1\nstep 2\n").expect("write");
    let killed = end(killed_by(9), Requested::Nothing);
    let consequence = end(WorkerStatus::Exited(91), Requested::Stop);
    let slow = end(killed_by(9), Requested::Kill);
    let ranks = [
        rank(&consequence, LOST),
        rank(&killed, FAILED),
        rank(&consequence, LOST),
        rank(&slow, Class::OnRequest),
    ];
    let failed = worker_failed(&ranks, 1, FailureCause::Other, context);
    insta::assert_snapshot!("killed", printed(&failed, context));
    assert_eq!((failed.attribution, failed.retry), (Attribution::Root, true));
}

#[test]
fn a_rank_that_failed_and_was_killed_while_it_saved_is_not_said_to_be_out_of_memory() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 2, &folder);
    let error = Error::io("cannot write step-8: no space left on device");
    let evidence = Evidence::new(Some(&note(0, error.hint("free some space"), context)));
    let killed = End { evidence, ..end(killed_by(9), Requested::Kill) };
    let consequence = end(WorkerStatus::Exited(91), Requested::Stop);
    let ranks = [rank(&killed, verdict::class(&killed, false, true)), rank(&consequence, LOST)];
    let failed = worker_failed(&ranks, 0, killed.cause(), context);
    assert_eq!((failed.code, failed.attribution, failed.rank), (ExitCode::Io, Attribution::Root, Some(0)));
    assert!(!failed.retry && failed.hint.is_some());
    assert_eq!(failed.message, "cannot write step-8: no space left on device");
    let bug = Failure {
        place: Some(StepPhase { step: 3, phase: Phase::Sync }),
        ..note(0, Error::internal("a bug"), context)
    };
    bug.write(context.log_dir).expect("write");
    let killed = End { evidence: Evidence::new(Some(&bug)), ..killed };
    let ranks = [rank(&killed, FAILED), rank(&consequence, LOST)];
    let failed = worker_failed(&ranks, 0, killed.cause(), context);
    let begun = "rank 0 of 2 (local rank 0, pid 4711) failed, and was killed before it had ended: a bug";
    assert!(failed.message.starts_with(begun), "{}", failed.message);
}

/// Of a thread of an observer, for instance. One that ends the process aborts it.
#[test]
fn a_panic_that_a_rank_had_outlived_does_not_prevent_its_restart() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 1, &folder);
    let evidence = Evidence::new(Some(&note(0, Error::internal("a bug"), context)));
    let retry = |signal| {
        let killed = End { evidence, ..end(killed_by(signal), Requested::Nothing) };
        let ranks = [rank(&killed, verdict::class(&killed, false, true))];
        worker_failed(&ranks, 0, killed.cause(), context).retry
    };
    assert_eq!([libc::SIGKILL, libc::SIGABRT].map(retry), [true, false]);
}

/// On a slow disk, for instance, while it saved.
#[test]
fn a_rank_that_was_killed_after_it_had_lost_another_names_that_one() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 4, &folder);
    let evidence = Evidence::new(Some(&note(0, silent(3), context)));
    let killed = End { evidence, ..end(killed_by(9), Requested::Kill) };
    let finished = end(WorkerStatus::Exited(0), Requested::Nothing);
    let ranks = [rank(&killed, verdict::class(&killed, false, true)), rank(&finished, Class::Done)];
    let failed = worker_failed(&ranks, 0, FailureCause::PeerLost, context);
    assert_eq!((failed.attribution, failed.rank, failed.retry), (Attribution::Consequence, Some(3), true));
    let begun = "rank 0 of 4 (local rank 0, pid 4711) failed, and was killed before it had ended: rank 3 did not respond";
    assert!(failed.message.starts_with(begun), "{}", failed.message);
    assert!(failed.message.contains("rank 1 had finished"), "{}", failed.message);
}

#[test]
fn the_error_of_an_invalid_job_is_shown_without_the_log() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 1, &folder);
    std::fs::write(logs::path(folder.path(), 0), "noise\n").expect("write");
    note(0, Error::data("data/train.bin is missing").hint("get it"), context);
    let wrong = end(WorkerStatus::Exited(78), Requested::Nothing);
    let failed = worker_failed(&[rank(&wrong, FAILED)], 0, FailureCause::Spec, context);
    insta::assert_snapshot!("invalid_job", printed(&failed, context));
    assert_eq!((failed.code, failed.retry), (ExitCode::Spec, false));
}

/// What the other ranks did matters once there was a step.
#[test]
fn a_job_that_cannot_begin_is_one_error() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 2, &folder);
    let (wrong, lost) =
        (end(WorkerStatus::Exited(74), Requested::Nothing), end(WorkerStatus::Exited(91), Requested::Stop));
    let failed = |culprit: usize, step: u64| {
        let mut error = note(culprit, Error::io("there is no such folder"), context);
        error.place = Some(StepPhase { step: 0, phase: Phase::Setup });
        error.write(folder.path()).expect("write");
        let mut other = note(1 - culprit, silent(culprit), context);
        other.place = Some(StepPhase { step, phase: Phase::Setup });
        other.write(folder.path()).expect("write");
        let mut ranks = [rank(&lost, LOST), rank(&lost, LOST)];
        ranks[culprit] = rank(&wrong, FAILED);
        worker_failed(&ranks, culprit, FailureCause::Checkpoint, context).message
    };
    assert_eq!(failed(0, 0), "there is no such folder");
    assert_eq!(failed(1, 0), "rank 1: there is no such folder");
    let begun = failed(0, 1);
    assert!(begun.starts_with("rank 0 of 2") && begun.contains("rank 1: step 1, phase setup"), "{begun}");
}

#[test]
fn a_silent_rank_is_blamed_by_the_one_that_noticed() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(0, 3, &folder);
    std::fs::write(logs::path(folder.path(), 1), "step 3\n").expect("write");
    for rank in [0, 2] {
        let mut note = note(rank, silent(1), context);
        note.place = Some(StepPhase { step: 3, phase: Phase::Sync });
        note.last_collective = Some("all_reduce #21 (sum of 12 f64)".into());
        note.write(folder.path()).expect("write");
        std::fs::write(FlightRecord::path(folder.path(), rank), "{}").expect("write");
    }
    let consequence = end(WorkerStatus::Exited(91), Requested::Nothing);
    let hung = end(killed_by(9), Requested::Kill);
    let ranks = [rank(&consequence, LOST), rank(&hung, Class::OnRequest), rank(&consequence, LOST)];
    let failed = worker_failed(&ranks, 2, FailureCause::PeerLost, context);
    insta::assert_snapshot!("silent", printed(&failed, context));
    // The first rank that ends may know less than another: it timed out waiting for rank 0, which was waiting for rank 1.
    note(2, CommError::new(CommErrorKind::Rendezvous, Some(0), "rank 0 has not seen them all"), context);
    let failed = worker_failed(&ranks, 2, FailureCause::PeerLost, context);
    assert_eq!((failed.attribution, failed.rank), (Attribution::Blamed, Some(1)));
    assert!(failed.message.contains("; rank 0 exited with 91"), "{failed:?}");
    // Two ranks that blame each other lost their connection; the first one is named.
    let ranks = [rank(&consequence, LOST), rank(&consequence, LOST), rank(&consequence, LOST)];
    let failed = worker_failed(&ranks, 2, FailureCause::PeerLost, context);
    assert!(failed.message.starts_with("rank 2 of 3"), "{failed:?}");
}

#[test]
fn a_rank_that_outlived_the_recall_of_its_node_is_blamed_as_far_as_is_known() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(2, 4, &folder);
    let consequence = end(WorkerStatus::Exited(91), Requested::Stop);
    let hung = end(killed_by(9), Requested::Kill);
    let ranks = [rank(&consequence, LOST), rank(&hung, Class::OnRequest)];
    let failed = worker_failed(&ranks, 1, FailureCause::PeerLost, context);
    insta::assert_snapshot!("unresponsive", printed(&failed, context));
    assert_eq!((failed.attribution, failed.rank, failed.retry), (Attribution::Unresponsive, Some(3), true));
    // A witness on the same node settles it.
    note(2, silent(3), context);
    let failed = worker_failed(&ranks, 1, FailureCause::PeerLost, context);
    assert!(failed.message.contains("; rank 2 exited with 91"), "{failed:?}");
    assert_eq!((failed.attribution, failed.code), (Attribution::Blamed, ExitCode::Collective));
}

#[test]
fn a_report_names_global_ranks_and_leaves_ranks_of_other_nodes_to_them() {
    let folder = tempfile::tempdir().expect("tempdir");
    let context = context(2, 4, &folder);
    note(3, silent(1), context);
    let consequence = end(WorkerStatus::Exited(91), Requested::Nothing);
    let requested = end(killed_by(15), Requested::Stop);
    let ranks = [rank(&requested, Class::OnRequest), rank(&consequence, LOST)];
    let failed = worker_failed(&ranks, 1, FailureCause::PeerLost, context);
    insta::assert_snapshot!("peer_of_another_node", printed(&failed, context));
    assert_eq!((failed.attribution, failed.rank, failed.retry), (Attribution::Consequence, Some(1), true));
    let killed = end(killed_by(9), Requested::Nothing);
    let failed = worker_failed(&[rank(&killed, FAILED)], 0, FailureCause::Other, context);
    assert!(failed.message.starts_with("rank 2 of 4 (local rank 0, pid 4711) was"), "{failed:?}");
}

#[test]
fn every_end_of_a_rank_is_described() {
    let mut text = String::new();
    let exits = ExitCode::ALL.iter().map(|code| *code as i32).chain([3, 101]).map(WorkerStatus::Exited);
    let signals = [libc::SIGKILL, libc::SIGSEGV, libc::SIGABRT, libc::SIGTERM, 99].map(killed_by);
    let dumped = WorkerStatus::Signaled { signal: libc::SIGBUS, core_dumped: true };
    let more = [dumped, WorkerStatus::NotStarted("no such file".into())];
    for status in exits.chain(signals).chain(more) {
        let _ = writeln!(text, "rank 1 {}", describe(&status));
    }
    let exited = end(WorkerStatus::Exited(0), Requested::Nothing);
    let killed = end(killed_by(9), Requested::Kill);
    let classes = [Class::Done, Class::Stopped, LOST, Class::OnRequest, FAILED];
    for info in classes.map(|class| rank(&exited, class)).into_iter().chain([
        rank(&killed, Class::OnRequestAfterLoss),
        rank(&killed, Class::OnRequest),
        Rank { end: None, class: None, pid: Some(1) },
        Rank { end: None, class: None, pid: None },
    ]) {
        let _ = writeln!(text, "ranks 2 and 3 {}", ending(&info));
    }
    let folder = tempfile::tempdir().expect("tempdir");
    let late = End { overdue: true, ..end(killed_by(9), Requested::Kill) };
    for info in [rank(&late, Class::OnRequest), Rank { end: None, class: None, pid: Some(4711) }] {
        let _ = writeln!(text, "{}", headline(&[info], 0, 0, context(0, 1, &folder)));
    }
    insta::assert_snapshot!("ends", text);
    assert_eq!(name(&[0, 1, 2, 3]), "ranks 0 to 3");
    assert_eq!(name(&[0, 2, 3]), "ranks 0, 2 and 3");
    assert_eq!(name(&[4]), "rank 4");
}
