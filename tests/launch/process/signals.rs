//! Signals to a supervisor and to a process without one, and their deaths.

use super::roles::{spawn, until};
use super::{assert_gone, folder, gone, pid};
use crate::common::{alone, finish};
use ddp_run::ExitCode;
use ddp_run::testing::{Endpoint, Handoff, JobHandoff, RankPosition, rendezvous::Secret};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A supervisor in a process (and a process group) of its own, with two workers that are ready.
fn supervisor(out: &Path, role: &str) -> (Child, Pid) {
    let mut command = spawn(&format!("supervise {role} {}", out.display()));
    let child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spawn");
    until("the workers are ready", || pid(out, "pid-0").is_some() && pid(out, "pid-1").is_some());
    let pid = Pid::from_child(&child);
    (child, pid)
}

#[test]
fn no_process_survives_a_killed_supervisor() {
    let _alone = alone();
    for role in ["stubborn", "sleep"] {
        let out = folder();
        let (child, supervisor) = supervisor(out.path(), role);
        kill_process(supervisor, Signal::KILL).expect("kill");
        finish(child);
        for name in ["pid-0", "pid-1"] {
            let pid = pid(out.path(), name).expect("ready");
            until("the worker is gone", || gone(pid));
        }
    }
}

/// The way without the kernel's help (macOS, or a spawning thread that lives on): the control pipe closes.
#[test]
fn a_worker_ends_when_its_control_pipe_closes() {
    let _alone = alone();
    let out = folder();
    let place = RankPosition::on_one_node(0, 1);
    let job =
        JobHandoff { out_dir: out.path().into(), job_toml: "x".repeat(300_000), ..JobHandoff::default() };
    let handoff = Handoff::new(place, Endpoint::Solo, Secret::generate().expect("random"), job);
    let mut command = spawn("stubborn");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("spawn");
    let mut pipe = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut pipe, &handoff.to_line().expect("line")).expect("write");
    until("the worker is ready", || pid(out.path(), "pid-0").is_some());
    assert!(child.try_wait().expect("wait").is_none());
    drop(pipe);
    assert_eq!(finish(child).status.code(), Some(ExitCode::WorkerFailed as i32));
}

#[test]
fn a_stop_signal_saves_and_exits_with_75() {
    let _alone = alone();
    for signal in [Signal::TERM, Signal::INT, Signal::USR1, Signal::HUP, Signal::QUIT] {
        let out = folder();
        let (child, pid) = supervisor(out.path(), "train");
        // As the terminal and `timeout` send it: to the whole group, which the workers are not in, and twice.
        kill_process(pid, signal).expect("kill");
        kill_process_group(pid, signal).expect("kill");
        assert_eq!(finish(child).status.code(), Some(75), "{signal:?}");
        assert!(out.path().join("saved-0").exists() && out.path().join("saved-1").exists());
    }
}

#[test]
fn a_second_signal_ends_the_run_at_once() {
    let _alone = alone();
    let out = folder();
    let (mut child, pid) = supervisor(out.path(), "stubborn");
    kill_process(pid, Signal::TERM).expect("kill");
    until("the workers know", || (0..2).all(|r| out.path().join(format!("stopping-{r}")).exists()));
    // Signals are repeated until one falls outside the time in which they count as the first.
    until("the supervisor is gone", || {
        let _ = kill_process(pid, Signal::INT);
        child.try_wait().expect("wait").is_some()
    });
    assert_eq!(finish(child).status.code(), Some(75));
    assert_gone(out.path(), &["pid-0", "pid-1"]);
}

#[test]
fn without_a_supervisor_a_second_signal_ends_the_process() {
    let _alone = alone();
    let out = folder();
    let mut child: Child = {
        let mut command: Command = spawn(&format!("alone {}", out.path().display()));
        command.stdout(Stdio::null()).spawn().expect("spawn")
    };
    let pid = Pid::from_child(&child);
    until("it is ready", || out.path().join("ready").exists());
    kill_process(pid, Signal::USR1).expect("kill");
    until("it knows", || out.path().join("stopping").exists());
    until("it is gone", || {
        let _ = kill_process(pid, Signal::TERM);
        child.try_wait().expect("wait").is_some()
    });
    assert_eq!(finish(child).status.code(), Some(75));
}

#[test]
fn ctrl_z_pauses_the_workers_with_the_supervisor() {
    let _alone = alone();
    let out = folder();
    let (child, supervisor) = supervisor(out.path(), "train");
    let workers = ["pid-0", "pid-1"].map(|name| pid(out.path(), name).expect("ready"));
    let stopped = |pid: Pid| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|s| s.starts_with('T'))
    };
    kill_process(supervisor, Signal::TSTP).expect("kill");
    until("all are stopped", || stopped(supervisor) && workers.iter().all(|w| stopped(*w)));
    kill_process(supervisor, Signal::CONT).expect("kill");
    until("all go on", || !stopped(supervisor) && !workers.iter().any(|w| stopped(*w)));
    kill_process(supervisor, Signal::TERM).expect("kill");
    assert_eq!(finish(child).status.code(), Some(75));
}
