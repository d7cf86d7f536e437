//! Signals in the first moments of the real binary: it is held where it reads its spec, which is a pipe here.

use crate::common::{TAG, alone, ddp_run, finish, stderr};
use crate::folder;
use crate::roles::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

const SPEC: &str = "name = \"early\"\nbatch_size = 8\n[model]\nname = \"linear\"\n\
    [dataset]\nname = \"random\"\nsamples = 64\n[optimizer]\nname = \"sgd\"\nlr = 0.1\n[launch]\nnproc_per_node = 1\n";

/// `ddp-run train` behind `env FLAG`, up to where it opens its spec: everything later waits for what is written there.
fn at_its_spec(subcommand: &str, flag: &str, out: &Path) -> (Child, Pid, File) {
    let spec = out.join("job.toml");
    assert!(Command::new("mkfifo").arg(&spec).status().expect("mkfifo starts").success());
    let real = ddp_run();
    let mut command = Command::new("env");
    command.arg(flag).arg(real.get_program()).arg(subcommand).arg(&spec);
    if subcommand == "train" {
        command.args(["--progress", "none", "--out"]).arg(out.join("run"));
    }
    for (name, value) in real.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env(TAG, out).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("env starts");
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK);
    let mut pipe = None;
    // Without a reader it can't be opened.
    until("it reads its spec", || {
        pipe = options.open(&spec).ok();
        pipe.is_some()
    });
    let pid = Pid::from_child(&child);
    (child, pid, pipe.expect("it is open"))
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
