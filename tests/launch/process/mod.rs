//! The supervisor on real processes: shell scripts, and this test binary in other roles (`roles.rs`). No training.
#![cfg(target_os = "linux")]

mod early;
mod nodes;
mod programs;
mod roles;
mod signals;

use std::fs;
use std::path::Path;
use std::sync::mpsc;

use crate::common::{HUNG, alone};
use ddp_run::testing::{LocalLaunch, Nodes};
use ddp_run::{Error, ErrorKind, ExitCode};
use roles::{shell, until, workers};
use rustix::process::{Pid, test_kill_process};

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("tempdir")
}

/// The run's end. On a thread, so that one that does not come is a failure; its workers live as long as that thread.
#[track_caller]
fn ended(launch: LocalLaunch) -> Result<ExitCode, Error> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(Nodes::default().run(launch)));
    told.recv_timeout(HUNG).expect("the run ends")
}

#[track_caller]
fn failed(launch: LocalLaunch) -> Error {
    ended(launch).expect_err("a worker fails")
}

/// A launch whose supervisor waits long for workers to exit when told to, or after another is done, and for the root cause of a
/// consequence: for tests in which each of these comes, however late.
fn patient(mut launch: LocalLaunch) -> LocalLaunch {
    (launch.policy.grace, launch.policy.root_cause_wait, launch.policy.last) = (2 * HUNG, 2 * HUNG, 2 * HUNG);
    launch
}

fn pid(out: &Path, name: &str) -> Option<Pid> {
    Pid::from_raw(fs::read_to_string(out.join(name)).ok()?.trim().parse().ok()?)
}

/// A zombie is gone: it only waits for its parent, which in a container may be no one.
fn gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    test_kill_process(pid).is_err() || stat.rsplit(") ").next().is_some_and(|s| s.starts_with(['Z', 'X']))
}

fn assert_gone(out: &Path, names: &[&str]) {
    for name in names {
        let pid = pid(out, name).unwrap_or_else(|| panic!("{name} was not written"));
        assert!(gone(pid), "{name} is left behind");
    }
}

#[test]
fn a_run_is_done_when_all_workers_exit_with_0() {
    let _alone = alone();
    let out = folder();
    let code = ended(shell(3, out.path(), "echo to stdout; echo to stderr >&2")).expect("done");
    assert_eq!(code, ExitCode::Done);
    for rank in 0..3 {
        let log = fs::read_to_string(out.path().join(format!("logs/rank-{rank}.log"))).expect("log");
        assert!(log.starts_with("=== ddp-run "), "{log}");
        assert!(log.contains(&format!("rank {rank}/3")) && log.ends_with("to stdout\nto stderr\n"), "{log}");
    }
}

#[test]
fn a_failing_worker_takes_the_run_down_and_is_named_with_the_end_of_its_log() {
    let _alone = alone();
    let out = folder();
    let script = "[ $rank = 1 ] && { echo last words; exit 3; }; until_taken_down";
    let error = failed(patient(shell(3, out.path(), script)));
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(error.message.starts_with("rank 1 of 3 (local rank 1, pid "), "{error}");
    assert!(
        error.message.contains("exited with 3\n") && error.message.contains("\n    last words\n"),
        "{error}"
    );
    assert!(error.message.ends_with("ranks 0 and 2 exited when told to"), "{error}");
    assert_gone(out.path(), &["pid-1"]);
}

#[test]
fn a_worker_killed_with_sigkill_is_named() {
    let _alone = alone();
    let out = folder();
    let error = failed(patient(shell(2, out.path(), "[ $rank = 0 ] && kill -9 $$; until_taken_down")));
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(
        error.message.contains("rank 0 of 2") && error.message.contains("killed by signal 9 (SIGKILL;"),
        "{error}"
    );
}

#[test]
fn a_worker_that_does_not_end_when_told_is_killed_with_what_it_started() {
    let _alone = alone();
    let out = folder();
    let script = "if [ $rank = 0 ]; then sleep 1000 & echo $! > $out/child; mv $out/child $out/pid-child;
        while :; do wait; done; fi
        while [ ! -e $out/pid-child ]; do sleep 0.01; done; exit 3";
    let error = failed(shell(2, out.path(), script));
    assert!(error.message.contains("rank 1 of 2"), "{error}");
    assert!(error.message.ends_with("rank 0 did not exit when told to and had to be killed"), "{error}");
    assert_gone(out.path(), &["pid-0", "pid-1"]);
    // The grandchild is the init process' to reap.
    let child = pid(out.path(), "pid-child").expect("written");
    until("the grandchild is gone", || gone(child));
}

#[test]
fn a_helper_that_outlives_its_worker_is_killed() {
    let _alone = alone();
    let out = folder();
    let launch = shell(1, out.path(), "sleep 1000 & echo $! > $out/pid-child; exit 0");
    assert_eq!(ended(launch).expect("done"), ExitCode::Done);
    let child = pid(out.path(), "pid-child").expect("written");
    until("the helper is gone", || gone(child));
}

#[test]
fn a_rank_that_lost_a_peer_is_not_blamed() {
    let _alone = alone();
    let out = folder();
    // A process that has ended is there until the supervisor knows of its end: only then comes the cause.
    let script = "[ $rank = 0 ] && exit 91
        while [ ! -s $out/pid-0 ] || kill -0 $(cat $out/pid-0); do sleep 0.01; done 2> /dev/null; kill -SEGV $$";
    let error = failed(patient(shell(2, out.path(), script)));
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(error.message.starts_with("rank 1 of 2") && error.message.contains("SIGSEGV"), "{error}");
    assert!(error.message.ends_with("rank 0 exited after losing this peer"), "{error}");
}

#[test]
fn a_worker_that_hangs_after_its_peer_failed_is_killed() {
    let _alone = alone();
    let out = folder();
    let script = "[ $rank = 1 ] && kill -STOP $$
        until grep -q '^State:.T' /proc/$(cat $out/pid-1)/status; do sleep 0.01; done 2> /dev/null
        exit 91";
    let error = failed(shell(2, out.path(), script));
    assert_eq!(error.kind, ErrorKind::Collective);
    assert!(error.message.contains("rank 1 did not exit when told to"), "{error}");
    assert_gone(out.path(), &["pid-1"]);
}

#[test]
fn the_message_and_code_of_a_worker_are_reported() {
    let _alone = alone();
    let out = folder();
    let error = failed(workers(2, out.path(), "bad-data"));
    assert_eq!(error.kind, ErrorKind::Spec);
    assert!(error.message.contains("data/x.bin is missing"), "{error}");
    assert_eq!(error.hint.as_deref(), Some("fetch it"));
}

#[test]
fn a_panic_reaches_the_log_and_the_report() {
    let _alone = alone();
    let out = folder();
    let error = failed(workers(2, out.path(), "panic"));
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(
        error.message.contains("rank 0 of 2") && error.message.contains("thread `loader` panicked"),
        "{error}"
    );
    let log = fs::read_to_string(out.path().join("logs/rank-0.log")).expect("log");
    assert!(log.contains("about to fail") && log.contains("index 7"), "{log}");
}

#[test]
fn a_program_that_cannot_be_started_ends_the_run() {
    let _alone = alone();
    let out = folder();
    let mut launch = shell(2, out.path(), "");
    launch.program = "/nonexistent/ddp-run".into();
    let error = failed(launch);
    assert_eq!(error.kind, ErrorKind::Internal);
    assert!(
        error.message.contains("could not be started") && error.message.contains("/nonexistent"),
        "{error}"
    );
    assert!(error.message.ends_with("rank 1 had not been started"), "{error}");
}

#[test]
fn a_job_that_cannot_be_encoded_starts_nothing() {
    let _alone = alone();
    let out = folder();
    let mut launch = shell(2, out.path(), "");
    launch.job = "x".repeat(5 << 20).into();
    assert_eq!(failed(launch).kind, ErrorKind::Spec);
    // A worker's log is opened before it is started.
    assert!(!out.path().join("logs/rank-0.log").exists());
}

#[test]
fn the_secret_is_in_no_argument_list_and_no_environment() {
    let _alone = alone();
    let out = folder();
    ended(workers(2, out.path(), "look-for-secret")).expect("done");
    let secrets =
        [0, 1].map(|rank| fs::read_to_string(out.path().join(format!("secret-{rank}"))).expect("report"));
    assert_eq!(secrets[0], secrets[1]);
    let other = folder();
    ended(workers(1, other.path(), "look-for-secret")).expect("done");
    assert_ne!(
        fs::read_to_string(other.path().join("secret-0")).expect("report"),
        secrets[0],
        "drawn for each run"
    );
}

#[test]
fn the_rendezvous_listener_reaches_rank_0_only() {
    let _alone = alone();
    let out = folder();
    assert_eq!(ended(workers(2, out.path(), "rendezvous")).expect("done"), ExitCode::Done);
}

#[test]
fn unfinished_files_of_a_killed_worker_are_removed() {
    let _alone = alone();
    let out = folder();
    let error = failed(shell(1, out.path(), ": > $out/logs/failure-rank-0.json.tmp; kill -KILL $$"));
    assert_eq!(error.kind, ErrorKind::WorkerFailed);
    assert!(!out.path().join("logs/failure-rank-0.json.tmp").exists());
}

#[test]
fn a_second_start_in_the_same_folder_keeps_the_first_ones_log() {
    let _alone = alone();
    let out = folder();
    ended(shell(1, out.path(), "echo first")).expect("done");
    fs::write(out.path().join("logs/failure-rank-0.json"), "{}").expect("write");
    let error = failed(shell(1, out.path(), "echo second; exit 1"));
    assert!(error.message.contains("\n    second") && !error.message.contains("first"), "{error}");
    let log = fs::read_to_string(out.path().join("logs/rank-0.log")).expect("log");
    assert!(log.contains("first\n=== ddp-run ") && log.ends_with("second\n"), "{log}");
    assert!(
        !out.path().join("logs/failure-rank-0.json").exists(),
        "a stale note would speak for the new worker"
    );
}
