//! What the tests with the real binary share.
#![allow(dead_code, unused_imports)]

pub mod browser;
mod child;
#[cfg(feature = "parquet")]
pub mod parquet_file;
// The unit tests of collectives use the same file.
#[cfg(target_os = "linux")]
#[path = "../../crates/collectives/src/testing/port.rs"]
mod port;
mod proc;
pub mod ranks;
pub mod server;

pub use child::{finish, finish_within};
#[cfg(target_os = "linux")]
pub use port::Port;
pub use proc::*;

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What takes longer has hung. No deadline of a test says more than that: these machines are slow and shared.
pub const HUNG: Duration = Duration::from_secs(300);
/// The same for a whole run.
pub const RUN_HUNG: Duration = Duration::from_secs(1200);

/// Every spec in `configs/`, in order.
pub fn configs() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = |folder: &Path| {
        let entries =
            std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path());
        entries.collect::<Vec<_>>()
    };
    let mut found = [files(&folder), files(&folder.join("ci"))].concat();
    found.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    found.sort();
    found
}

/// One test at a time has the machine: each starts processes.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn ddp_run() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_ddp-run")))
}

/// The binary of an example.
pub fn example(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_ddp-run")).with_file_name("examples").join(name);
    assert!(
        path.is_file(),
        "{} is missing: `cargo build --examples` builds it, and so does `cargo test`",
        path.display()
    );
    path
}

/// A program that is ddp-run with components of its own.
pub fn program(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    // These tests may run in a job of Slurm or MPI themselves.
    let of_a_launcher = |name: &str| {
        let whole = [
            "RANK",
            "WORLD_SIZE",
            "GROUP_RANK",
            "MASTER_ADDR",
            "MASTER_PORT",
            "JOB_COMPLETION_INDEX",
            "RUST_LOG",
        ];
        let starts =
            ["LOCAL_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI_", "TORCHELASTIC_", "DDP_RUN_", "PET_"];
        let kept = ["DDP_RUN_TORCHRUN", "DDP_RUN_MPIRUN", "DDP_RUN_TEST", "SLURM_CONF"];
        !kept.iter().any(|s| name.starts_with(s))
            && (whole.contains(&name) || starts.iter().any(|s| name.starts_with(s)))
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| of_a_launcher(name)) {
        command.env_remove(name);
    }
    // No test asks the Internet for a data set.
    command.env("DDP_RUN_OFFLINE", "1");
    // Nothing of one test run is left to the next; within it, it saves time.
    command.env("DDP_RUN_KERNEL_CACHE", kernels());
    command
}

/// Where the runs of this test program keep a device's kernels.
fn kernels() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(concat!("kernels-", env!("CARGO_CRATE_NAME")));
    static EMPTIED: std::sync::Once = std::sync::Once::new();
    EMPTIED.call_once(|| drop(std::fs::remove_dir_all(&folder)));
    folder
}

/// What trains `spec` into `out`.
pub fn train_command(spec: &Path, out: &Path, flags: &[&str]) -> Command {
    trains(ddp_run(), spec, out, flags)
}

/// The command line with which a program trains `spec` into `out`.
pub fn trains(mut command: Command, spec: &Path, out: &Path, flags: &[&str]) -> Command {
    command.arg("train").arg(spec).arg("--out").arg(out).args(["--progress", "none"]).args(flags);
    command.env(TAG, out);
    command
}

/// Trains `spec` into `out` to the end.
#[track_caller]
pub fn train(spec: &Path, out: &Path, flags: &[&str]) -> Output {
    output_of(&mut train_command(spec, out, flags))
}

/// Trains `spec` in `dir`, and returns the run's folder.
#[track_caller]
pub fn trained(dir: &Path, spec: &str) -> PathBuf {
    let out = dir.join("run");
    assert_code(&train(&write_spec(dir, spec), &out, &[]), 0);
    out
}

/// Runs `command` to its end.
#[track_caller]
pub fn output_of(command: &mut Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    finish_within(RUN_HUNG, command.spawn().expect("the program starts"))
}

pub fn start(spec: &Path, out: &Path, flags: &[&str]) -> Child {
    let mut command = train_command(spec, out, flags);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the binary starts")
}

pub fn write_spec(dir: &Path, text: &str) -> PathBuf {
    let path = dir.join("job.toml");
    std::fs::write(&path, text).expect("the scratch folder is writable");
    path
}

/// Standard output of a command that succeeds.
#[track_caller]
pub fn stdout_of(command: &mut Command) -> String {
    let output = output_of(command);
    assert_code(&output, 0);
    stdout(&output)
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stderr:\n{}", stderr(output));
}

#[track_caller]
pub fn parse_json(text: impl AsRef<[u8]>) -> Value {
    let text = text.as_ref();
    serde_json::from_slice(text).unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(text)))
}

#[track_caller]
pub fn read_json(path: impl AsRef<Path>) -> Value {
    let path = path.as_ref();
    parse_json(std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

/// All files below `folder`, with their contents.
pub fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut open) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = open.pop() {
        for path in std::fs::read_dir(next).expect("a folder").map(|entry| entry.expect("readable").path()) {
            if path.is_dir() {
                open.push(path);
            } else {
                let bytes = std::fs::read(&path).expect("a file");
                found.insert(path, bytes);
            }
        }
    }
    found
}

/// The step events of a run.
pub fn step_events(out: &Path) -> Vec<Value> {
    events(out).into_iter().filter(|event| event["event"] == "step").collect()
}

/// The events of a run, parsed.
pub fn events(out: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

/// What of a run's metrics must not depend on when it was interrupted: everything but times and the marks of resumption.
pub fn results(out: &Path) -> Vec<Value> {
    let mut events = events(out);
    events.retain(|e| e["event"] == "step" || e["event"] == "epoch");
    for event in &mut events {
        let object = event.as_object_mut().expect("events are objects");
        for timing in [
            "time",
            "seconds",
            "samples_per_s",
            "tokens_per_s",
            "flops_per_s",
            "mfu",
            "data_wait",
            "times",
            "overlap",
        ] {
            object.remove(timing);
        }
    }
    events
}

/// Waits until `ready`, with a deadline; the only use of the clock is to give up.
#[track_caller]
pub fn wait_for(what: &str, deadline: Duration, ready: impl FnMut() -> bool) {
    assert!(within(deadline, ready), "waited {deadline:?} in vain for {what}");
}

/// True once `ready`, false when it is not in time.
pub fn within(deadline: Duration, mut ready: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !ready() {
        if begun.elapsed() > deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    true
}

/// The newest checkpoint folder of a run.
pub fn newest_checkpoint(out: &Path) -> PathBuf {
    let mut steps: Vec<PathBuf> = std::fs::read_dir(out.join("checkpoints"))
        .expect("the run has checkpoints")
        .filter_map(|e| Some(e.ok()?.path()))
        .filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("step-")))
        .collect();
    steps.sort();
    steps.pop().expect("the run has a checkpoint")
}

/// The bytes of model and optimizer, and of the averaged weights if there are some, in the newest checkpoint of a run.
pub fn bits(out: &Path) -> Vec<Vec<u8>> {
    let checkpoint = newest_checkpoint(out);
    let read = |name: &str| std::fs::read(checkpoint.join(name));
    let required = ["model.safetensors", "optimizer.safetensors"];
    let required = required.map(|name| read(name).expect("a checkpoint has this file"));
    required.into_iter().chain(read("ema.safetensors")).collect()
}
