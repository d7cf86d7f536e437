//! What this test binary does when a test starts it again: it plays a supervisor or a worker.
//!
//! The test `role` is the entry: it does nothing unless [`ROLE`] is set. A role reports through files in a folder, each
//! of which appears whole.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{HUNG, wait_for};
use ddp_run::testing::{
    Endpoint, Failure, Handoff, JobHandoff, LocalLaunch, Nodes, OnSecondSignal, Received, StopFlag, logs,
    received,
};
use ddp_run::{Error, ExitCode};

pub const ROLE: &str = "DDP_RUN_TEST_ROLE";

/// A launch of `nproc` shell scripts. A script finds its rank in `$rank`, the folder in `$out`.
pub fn shell(nproc: usize, out: &Path, script: &str) -> LocalLaunch {
    // The handoff is a worker's first line, and the word that the run is taken down the next one.
    let prelude = "read -r line; rank=${line#*'\"rank\":'}; rank=${rank%%,*}; out=$0
        [ \"$rank\" != 0 ] || exec >> \"$out/logs/rank-0.log\" 2>&1
        echo $$ > \"$out/pid-$rank\"
        until_taken_down() { read -r word; [ \"$word\" = take-down ] && exit 143; exit 1; }\n";
    // A shell reads its input byte by byte.
    let mut launch = launch(nproc, out, 0);
    launch.program = "/bin/sh".into();
    launch.args = vec!["-c".into(), format!("{prelude}{script}").into(), out.into()];
    launch
}

/// A launch of `nproc` processes that play `role`, a function of [`play`].
pub fn workers(nproc: usize, out: &Path, role: &str) -> LocalLaunch {
    // More than a pipe takes at once.
    let mut launch = launch(nproc, out, 300_000);
    launch.program = "/bin/sh".into();
    let exec = format!(
        "{ROLE}={role} exec \"$0\" --exact process::roles::role --nocapture --test-threads 1 > /dev/null"
    );
    launch.args = vec!["-c".into(), exec.into(), std::env::current_exe().expect("own path").into()];
    launch
}

fn launch(nproc: usize, out: &Path, spec_bytes: usize) -> LocalLaunch {
    let job_toml = "x".repeat(spec_bytes);
    let job = JobHandoff { out_dir: out.to_path_buf(), job_toml, ..JobHandoff::default() };
    LocalLaunch::new(nproc, &job, job.logs()).expect("own path")
}

/// A process of its own that plays `role`. It hears the terminal's signals also where these tests were started to ignore them.
pub fn spawn(role: &str) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,HUP,QUIT").arg(std::env::current_exe().expect("own path"));
    command.args(["--exact", "process::roles::role", "--nocapture", "--test-threads", "1"]).env(ROLE, role);
    command
}

/// Waits for something that another process does.
#[track_caller]
pub fn until(what: &str, done: impl FnMut() -> bool) {
    wait_for(what, HUNG, done);
}

pub fn report(out: &Path, name: &str, text: &str) {
    let scratch = out.join(format!(".{name}"));
    fs::write(&scratch, text).expect("write");
    fs::rename(&scratch, out.join(name)).expect("rename");
}

#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let code = match role.split_once(' ') {
        Some(("supervise", rest)) => {
            let (role, out) = rest.split_once(' ').expect("role and folder");
            supervise(role, &PathBuf::from(out))
        }
        Some(("alone", out)) => alone(&PathBuf::from(out)),
        Some(("node", rest)) => super::nodes::play(rest),
        _ => play(&role),
    };
    // Not through the test harness, whose exit code is its own.
    std::process::exit(code);
}

fn supervise(role: &str, out: &Path) -> i32 {
    let mut launch = match role {
        // Knows nothing of a control pipe.
        "sleep" => shell(2, out, "exec sleep 1000"),
        _ => workers(2, out, role),
    };
    if role == "train" {
        // Two signals are one, however far the machine draws them apart.
        launch.policy.debounce = 2 * HUNG;
    }
    match Nodes::default().run(launch) {
        Ok(code) => code as i32,
        Err(error) => {
            report(out, "error", &error.to_string());
            ExitCode::from(error.kind) as i32
        }
    }
}

/// A process without a supervisor that never gets to a step boundary.
fn alone(out: &Path) -> i32 {
    let stop = StopFlag::install(OnSecondSignal::Exit).expect("handlers");
    report(out, "ready", "");
    until("stop", || stop.requested());
    report(out, "stopping", "");
    std::thread::sleep(2 * HUNG);
    1
}

fn play(role: &str) -> i32 {
    let stop = StopFlag::install(OnSecondSignal::Ignore).expect("handlers");
    let received = received(&stop).expect("handoff");
    let handoff = &received.handoff;
    let (out, rank) = (handoff.job.out_dir.clone(), handoff.place.rank);
    assert_eq!(handoff.job.job_toml.len(), 300_000);
    report(&out, &format!("pid-{rank}"), &std::process::id().to_string());
    match role {
        "train" => {
            until("stop", || stop.requested());
            report(&out, &format!("saved-{rank}"), "");
            ExitCode::Stopped as i32
        }
        "stubborn" => {
            until("stop", || stop.requested());
            report(&out, &format!("stopping-{rank}"), "");
            std::thread::sleep(2 * HUNG);
            1
        }
        "rendezvous" => rendezvous(received),
        "look-for-secret" => look_for_secret(handoff),
        "bad-data" => {
            let error = Error::data("data/x.bin is missing").hint("fetch it");
            Failure::new(rank, &error).write(&handoff.log_dir).expect("note");
            ExitCode::from(error.kind) as i32
        }
        "panic" => {
            logs::init_worker(handoff, handoff.job.log, None).expect("tracing");
            logs::record_panics(handoff);
            tracing::info!("about to fail");
            if rank == 0 {
                // On a thread: the harness catches what its own threads do.
                let _ = std::thread::Builder::new()
                    .name("loader".into())
                    .spawn(|| panic!("index 7"))
                    .map(|t| t.join());
                return 101;
            }
            std::thread::sleep(2 * HUNG);
            1
        }
        other => panic!("no role `{other}`"),
    }
}

/// Rank 0 greets one peer and goes. The peer has nothing of the listener: not its descriptor, and no one listens there
/// any more once rank 0 is gone.
fn rendezvous(received: Received) -> i32 {
    match (&received.handoff.endpoint, received.listener) {
        (Endpoint::Inherited { addr, .. }, Some(listener)) => {
            assert_eq!(listener.local_addr().expect("addr"), *addr);
            drop(listener.accept().expect("accept"));
            0
        }
        (Endpoint::Connect { host, port }, None) => {
            let sockets = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let targets = sockets.filter_map(|fd| fs::read_link(fd.path()).ok());
            assert!(
                !targets.into_iter().any(|t| t.to_string_lossy().starts_with("socket:")),
                "a socket was inherited"
            );
            let mut stream = TcpStream::connect((host.as_str(), *port)).expect("connect");
            assert_eq!(stream.read(&mut [0]).expect("end of file"), 0);
            until("the port is closed", || TcpStream::connect((host.as_str(), *port)).is_err());
            0
        }
        other => panic!("unexpected endpoint: {other:?}"),
    }
}

fn look_for_secret(handoff: &Handoff) -> i32 {
    let secret = handoff.secret.to_hex();
    let parent = std::os::unix::process::parent_id();
    for pid in [std::process::id(), parent] {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(format!("/proc/{pid}/{file}")).expect("/proc");
            assert!(!bytes.windows(16).any(|w| w == &secret.as_bytes()[..16]), "the secret is in {file}");
        }
    }
    report(&handoff.job.out_dir, &format!("secret-{}", handoff.place.rank), &secret);
    0
}
