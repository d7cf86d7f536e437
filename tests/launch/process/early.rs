//! Signals in the first moments of the real binary: it is held where it reads its spec from a pipe.

use super::folder;
use super::roles::until;
use crate::common::{TAG, alone, ddp_run, finish, stderr};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

const SPEC: &str = "name = \"early\"\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 64\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n[launch]\nnproc_per_node = 1\n";

/// `ddp-run train` behind `env FLAG`, up to where it reads its spec: everything later waits for what is written there.
fn at_its_spec(subcommand: &str, flag: &str, out: &Path) -> (Child, Pid, ChildStdin) {
    let real = ddp_run();
    let mut command = Command::new("env");
    command.arg(flag).arg(real.get_program()).args([subcommand, "/dev/stdin"]);
    if subcommand == "train" {
        command.args(["--progress", "none", "--out"]).arg(out.join("run"));
    }
    for (name, value) in real.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env(TAG, out).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("env starts");
    let spec = child.stdin.take().expect("it is a pipe");
    let files = Path::new("/proc").join(child.id().to_string()).join("fd");
    // It opens the pipe once more to read it.
    until("it reads its spec", || {
        let target = |path: &Path| fs::read_link(path).ok();
        let input = target(&files.join("0"));
        let opened = fs::read_dir(&files).into_iter().flatten().flatten();
        input.is_some() && opened.filter(|file| target(&file.path()) == input).count() > 1
    });
    let pid = Pid::from_child(&child);
    (child, pid, spec)
}

#[test]
fn a_stop_request_is_handled_before_slow_operations() {
    let _alone = alone();
    for signal in [Signal::TERM, Signal::HUP] {
        let out = folder();
        let (child, pid, mut spec) = at_its_spec("train", "--default-signal=HUP", out.path());
        kill_process(pid, signal).expect("kill");
        spec.write_all(SPEC.as_bytes()).expect("write");
        drop(spec);
        let output = finish(child);
        assert_eq!(output.status.code(), Some(75), "{signal:?}: {}", stderr(&output));
        assert!(!out.path().join("run").exists(), "nothing has begun");
    }
}

#[test]
fn signals_ignored_by_nohup_stay_ignored() {
    let _alone = alone();
    let out = folder();
    let (child, pid, mut spec) = at_its_spec("train", "--ignore-signal=HUP,INT,QUIT", out.path());
    for signal in [Signal::HUP, Signal::INT, Signal::QUIT] {
        kill_process(pid, signal).expect("kill");
    }
    spec.write_all(SPEC.as_bytes()).expect("write");
    drop(spec);
    let output = finish(child);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_subcommand_with_nothing_to_save_is_killed_by_a_signal() {
    use std::os::unix::process::ExitStatusExt;
    let _alone = alone();
    let out = folder();
    let (child, pid, _spec) = at_its_spec("check", "--default-signal=INT", out.path());
    kill_process(pid, Signal::INT).expect("kill");
    assert_eq!(finish(child).status.signal(), Some(Signal::INT.as_raw()));
}
