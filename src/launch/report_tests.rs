use super::*;
use crate::comm::{CommError, CommErrorKind};
use crate::error::Error;
use crate::launch::failure::{Evidence, Kind};

fn end(status: WorkerStatus, asked: Asked) -> End {
    End { status, asked, order: 0, overdue: false, evidence: Evidence::default() }
}

fn rank<'a>(end: &'a End, class: Class) -> Rank<'a> {
    Rank { end: Some(end), class: Some(class), pid: Some(4711) }
}

/// The report for a run on one node.
fn failed(ranks: &[Rank<'_>], culprit: usize, code: ExitCode, log_dir: &Path) -> Error {
    let scene = Scene { first_rank: 0, world_size: ranks.len(), log_dir };
    error_of(worker_failed(ranks, culprit, code, scene))
}

fn error_of(failure: Failed) -> Error {
    Error { hint: failure.hint, ..Error::new(failure.code, failure.message) }
}

#[test]
fn a_killed_rank_is_named_with_its_log_and_its_followers() {
    let folder = tempfile::tempdir().expect("tempdir");
    let log = logs::path(folder.path(), 1);
    std::fs::write(&log, "step 1\nstep 2\n").expect("write");
    let killed = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::Nothing);
    let echo = end(WorkerStatus::Exited(91), Asked::ToStop);
    let slow = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::ToDie);
    let ranks = [
        rank(&echo, Class::Echo),
        rank(&killed, Class::Root),
        rank(&echo, Class::Echo),
        rank(&slow, Class::Provoked),
    ];
    let error = failed(&ranks, 1, ExitCode::WorkerFailed, folder.path());
    let expected = format!(
        "rank 1 of 4 (local rank 1, pid 4711) was killed by signal 9 (SIGKILL; often the kernel's out-of-memory \
         killer)\n\nthe end of its log, {}:\n    step 1\n    step 2\n\nranks 0 and 2 lost this peer and ended; \
         rank 3 did not end when asked and had to be killed",
        log.display()
    );
    assert_eq!(error.to_string(), expected);
}

#[test]
fn a_workers_own_words_come_first() {
    let folder = tempfile::tempdir().expect("tempdir");
    std::fs::write(logs::path(folder.path(), 0), "noise\n").expect("write");
    let note = Failure {
        rank: 0,
        pid: 4711,
        code: 78,
        kind: Kind::Spec,
        monotonic_ns: 0,
        message: "data/train.bin is missing".into(),
        hint: Some("get it".into()),
        peer: None,
        step: None,
        phase: None,
        last_collective: None,
    };
    note.write(folder.path()).expect("write");
    let wrong = end(WorkerStatus::Exited(78), Asked::Nothing);
    let error = failed(&[rank(&wrong, Class::Root)], 0, ExitCode::Spec, folder.path());
    assert_eq!(
        error.to_string(),
        "rank 0 of 1 (local rank 0, pid 4711) exited with 78 (the spec or its data is invalid): data/train.bin is \
         missing\n\nhint: get it"
    );
    assert_eq!(error.code, ExitCode::Spec);
}

#[test]
fn a_silent_rank_is_blamed_by_the_one_that_noticed() {
    let folder = tempfile::tempdir().expect("tempdir");
    std::fs::write(logs::path(folder.path(), 1), "step 3\n").expect("write");
    let silent = CommError::new(CommErrorKind::Timeout, Some(1), "rank 1 gave no sign of life");
    for (rank, step) in [(0, 3), (2, 3)] {
        let mut note = Failure::of(rank, &Error::from(silent.clone()));
        (note.pid, note.step, note.phase) = (4711, Some(step), Some("sync".into()));
        note.last_collective = Some("all_reduce #21 (sum of 12 f64)".into());
        note.write(folder.path()).expect("write");
        std::fs::write(FlightRecord::path(folder.path(), rank), "{}").expect("write");
    }
    let echo = end(WorkerStatus::Exited(91), Asked::Nothing);
    let hung = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::ToDie);
    let ranks = [rank(&echo, Class::Echo), rank(&hung, Class::Provoked), rank(&echo, Class::Echo)];
    let error = failed(&ranks, 2, ExitCode::Collective, folder.path());
    let expected = format!(
        "rank 1 of 3 (local rank 1, pid 4711) did not end when asked and had to be killed; rank 2 exited with 91 (a \
         collective timed out or lost a peer): rank 1 gave no sign of life\n\nthe end of its log, {}:\n    step 3\n\n\
         ranks 0 and 2 lost this peer and ended\n\nranks 0 and 2: step 3, phase sync, last collective all_reduce #21 \
         (sum of 12 f64)\n\nthe last collectives of ranks 0 and 2: {}",
        logs::path(folder.path(), 1).display(),
        folder.path().join("collectives-rank-{0,2}.json").display()
    );
    assert_eq!(error.message, expected);
    // The first rank that ends may know less than another: it timed out waiting for rank 0, which was waiting for rank 1.
    let impatient = CommError::new(CommErrorKind::Rendezvous, Some(0), "rank 0 has not seen them all");
    let mut note = Failure::of(2, &Error::from(impatient));
    note.pid = 4711;
    note.write(folder.path()).expect("write");
    let error = failed(&ranks, 2, ExitCode::Collective, folder.path());
    let noticed =
        "had to be killed; rank 0 exited with 91 (a collective timed out or lost a peer): rank 1 gave";
    assert!(error.message.contains(noticed), "{error}");
    // Two ranks that blame each other lost their connection; the first one is named.
    let ranks = [rank(&echo, Class::Echo), rank(&echo, Class::Echo), rank(&echo, Class::Echo)];
    let error = failed(&ranks, 2, ExitCode::Collective, folder.path());
    assert!(error.message.starts_with("rank 2 of 3"), "{error}");
}

#[test]
fn a_rank_that_outlived_the_recall_of_its_node_is_blamed_as_far_as_is_known() {
    let folder = tempfile::tempdir().expect("tempdir");
    let scene = Scene { first_rank: 2, world_size: 4, log_dir: folder.path() };
    let echo = end(WorkerStatus::Exited(91), Asked::ToStop);
    let hung = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::ToDie);
    let ranks = [rank(&echo, Class::Echo), rank(&hung, Class::Provoked)];
    let failure = worker_failed(&ranks, 1, ExitCode::Collective, scene);
    let start = "rank 3 of 4 (local rank 1, pid 4711) did not end when asked and had to be killed\n";
    assert!(failure.message.starts_with(start), "{failure:?}");
    assert_eq!((failure.cause, failure.rank, failure.retry), (Cause::Unresponsive, Some(3), true));
    // A witness on the same node settles it.
    let error = CommError::new(CommErrorKind::Timeout, Some(3), "rank 3 gave no sign of life");
    let note = Failure { pid: 4711, ..Failure::of(2, &Error::from(error)) };
    note.write(folder.path()).expect("write");
    let failure = worker_failed(&ranks, 1, ExitCode::Collective, scene);
    assert!(failure.message.contains("had to be killed; rank 2 exited with 91 (a "), "{failure:?}");
    assert_eq!((failure.cause, failure.code), (Cause::Blamed, ExitCode::Collective));
}

#[test]
fn statuses_read_well() {
    assert_eq!(describe(&WorkerStatus::Exited(3)), "exited with 3");
    let dumped = describe(&WorkerStatus::Signaled { signal: 11, core_dumped: true });
    assert_eq!(dumped, "was killed by signal 11 (SIGSEGV; a crash in native code, core dumped)");
    assert_eq!(name(&[0, 1, 2, 3]), "ranks 0 to 3");
    assert_eq!(name(&[0, 2, 3]), "ranks 0, 2 and 3");
    assert_eq!(name(&[4]), "rank 4");
}

#[test]
fn a_node_speaks_of_global_ranks_and_leaves_those_of_others_to_them() {
    let folder = tempfile::tempdir().expect("tempdir");
    let scene = Scene { first_rank: 2, world_size: 4, log_dir: folder.path() };
    let error = CommError::new(CommErrorKind::Timeout, Some(1), "rank 1 gave no sign of life");
    let mut note = Failure::of(3, &Error::from(error));
    note.pid = 4711;
    note.write(folder.path()).expect("write");
    let echo = end(WorkerStatus::Exited(91), Asked::Nothing);
    let asked = end(WorkerStatus::Signaled { signal: 15, core_dumped: false }, Asked::ToStop);
    let ranks = [rank(&asked, Class::Provoked), rank(&echo, Class::Echo)];
    let failure = worker_failed(&ranks, 1, ExitCode::Collective, scene);
    let start = "rank 3 of 4 (local rank 1, pid 4711) exited with 91 (a collective timed out or lost a peer): rank 1 gave";
    assert!(failure.message.starts_with(start), "{failure:?}");
    assert!(failure.message.contains("rank 2 ended when asked"), "{failure:?}");
    assert_eq!((failure.cause, failure.rank, failure.retry), (Cause::Echo, Some(1), true));
    let killed = end(WorkerStatus::Signaled { signal: 9, core_dumped: false }, Asked::Nothing);
    let ranks = [rank(&killed, Class::Root), rank(&echo, Class::Echo)];
    let failure = worker_failed(&ranks, 0, ExitCode::WorkerFailed, scene);
    assert!(
        failure.message.starts_with("rank 2 of 4 (local rank 0, pid 4711) was killed by signal 9"),
        "{failure:?}"
    );
    assert_eq!((failure.cause, failure.retry), (Cause::Root, true));
}
