//! What the tests with the real binary share.
#![allow(dead_code)]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

pub fn ddp_run() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ddp-run"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null());
    // These tests may run in a job of Slurm or MPI themselves.
    let of_a_launcher = |name: &str| {
        let whole =
            ["RANK", "WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX"];
        let starts = ["LOCAL_", "SLURM_", "OMPI_", "PMI_", "PMIX_", "MPI_", "TORCHELASTIC_", "DDP_RUN_"];
        let kept = ["DDP_RUN_TORCHRUN", "DDP_RUN_MPIRUN", "DDP_RUN_TEST", "SLURM_CONF"];
        !kept.iter().any(|s| name.starts_with(s))
            && (whole.contains(&name) || starts.iter().any(|s| name.starts_with(s)))
    };
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| of_a_launcher(name)) {
        command.env_remove(name);
    }
    // Nothing of one test run is left to the next; within it, it saves time.
    command.env("DDP_RUN_KERNEL_CACHE", kernels());
    command
}

/// A port that nobody has. Not one of those that the system gives to whoever asks for any, for it may be somebody's by the time that
/// it is used.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Other test programs that run at the same time have another process number.
    let first = 12_000 + (std::process::id() % 200) as u16 * 50;
    let free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports = std::iter::repeat_with(|| first + NEXT.fetch_add(1, Ordering::Relaxed));
    ports.take(1000).find(free).expect("one of a thousand ports is free")
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
    let mut command = ddp_run();
    command.arg("train").arg(spec).arg("--out").arg(out).args(["--progress", "none"]).args(flags);
    command
}

/// Trains `spec` into `out` to the end.
pub fn train(spec: &Path, out: &Path, flags: &[&str]) -> Output {
    train_command(spec, out, flags).output().expect("the binary starts")
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

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
pub fn assert_code(output: &Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "stderr:\n{}", stderr(output));
}

/// The events of a run, parsed.
pub fn events(out: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    text.lines().filter_map(|l| serde_json::from_str(l).ok()).collect()
}

/// What of a run's metrics must not depend on when it was interrupted: everything but times and the marks of resumption.
pub fn results(out: &Path) -> Vec<serde_json::Value> {
    let mut events = events(out);
    events.retain(|e| e["event"] == "step" || e["event"] == "epoch");
    for event in &mut events {
        let object = event.as_object_mut().expect("events are objects");
        for timing in ["seconds", "samples_per_s", "data_wait"] {
            object.remove(timing);
        }
    }
    events
}

/// Waits until `ready`, with a deadline; the only use of the clock is to give up.
#[track_caller]
pub fn wait_for(what: &str, deadline: Duration, mut ready: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !ready() {
        assert!(begun.elapsed() < deadline, "waited {deadline:?} in vain for {what}");
        std::thread::yield_now();
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

pub fn kill(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    let _ = rustix::process::kill_process(pid, signal);
}

/// Process ids of the workers that `supervisor` has started (Linux).
pub fn children(supervisor: u32) -> Vec<u32> {
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

pub fn alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z')
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

/// Every process of a run that is looked for has it in its environment, with the run's folder.
pub const TAG: &str = "DDP_RUN_TEST_RUN";

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

/// Live processes that were started for the run in `out`.
pub fn processes(out: &Path) -> Vec<u32> {
    let tag = format!("{TAG}={}", out.display());
    let pids = std::fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of_run = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|b| *b == 0).any(|v| v == tag.as_bytes()) && alive(*pid)
    };
    pids.filter(of_run).collect()
}
