//! Two supervisors as two nodes of a run, one of which is stopped (SIGSTOP) while its workers end.

use super::roles::{shell, spawn, until};
use super::{folder, pid};
use crate::common::{HUNG, Port, alone, finish};
use ddp_run::ExitCode;
use ddp_run::testing::{KeySource, Limits, NodeRange, Nodes};
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// `RANK PORT MILLISECONDS FOLDER`: a node whose one worker ends once there is a file `go`. It waits so long for a report, or for a sign
/// of node 0.
pub fn play(arguments: &str) -> i32 {
    let words: Vec<&str> = arguments.splitn(4, ' ').collect();
    let [rank, port, patience, out] = words[..] else { panic!("four arguments") };
    let out = Path::new(out).join(rank);
    std::fs::create_dir_all(&out).expect("the scratch folder is writable");
    let launch = shell(1, &out, "until [ -e $out/../go ]; do sleep 0.01; done");
    let mut nodes = Nodes {
        limits: Limits::new(NodeRange::exactly(2)),
        node_rank: rank.parse().ok(),
        endpoint: format!("127.0.0.1:{port}").parse().ok(),
        key: Some(KeySource::Home(out.with_file_name("secret"))),
        ..Nodes::default()
    };
    let patience = Duration::from_millis(patience.parse().expect("a number"));
    match rank {
        "0" => nodes.limits.report = patience,
        _ => nodes.silence = patience,
    }
    match nodes.run(launch) {
        Ok(code) => code as i32,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(error.kind) as i32
        }
    }
}

#[test]
fn a_finished_run_is_done_even_if_a_supervisor_is_stopped() {
    let _alone = alone();
    for stopped in [0, 1] {
        let (out, port) = (folder(), Port::new());
        // The stopped one has all the time when it goes on.
        let patience = |rank| if rank == stopped { 2 * HUNG.as_millis() } else { 1000 };
        let mut nodes = [0, 1].map(|rank| {
            let role = format!("node {rank} {port} {} {}", patience(rank), out.path().display());
            Some(spawn(&role).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("spawn"))
        });
        let works = |rank: usize| pid(&out.path().join(rank.to_string()), &format!("pid-{rank}")).is_some();
        until("both nodes have their worker", || works(0) && works(1));
        let mut take = |rank: usize| nodes[rank].take().expect("once");
        let held: Child = take(stopped);
        let held_pid = Pid::from_child(&held);
        kill_process(held_pid, Signal::STOP).expect("kill");
        std::fs::write(out.path().join("go"), "").expect("write");
        let other = finish(take(1 - stopped));
        kill_process(held_pid, Signal::CONT).expect("kill");
        let held = finish(held);
        let told = [&held, &other].map(|o| String::from_utf8_lossy(&o.stderr).into_owned());
        assert_eq!(
            (held.status.code(), other.status.code()),
            (Some(0), Some(0)),
            "{stopped} is stopped: {told:?}"
        );
    }
}
