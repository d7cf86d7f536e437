//! The processes of a run, as /proc has them (Linux), and runs that a fault holds.

use super::{HUNG, within};
use rustix::process::Signal;
use std::path::Path;

/// Every process of a run that is looked for has it in its environment, with the run's folder.
pub const TAG: &str = "DDP_RUN_TEST_RUN";

pub fn kill(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    let _ = rustix::process::kill_process(pid, signal);
}

/// Process ids of the workers that `supervisor` has started, in the order of their ranks.
pub fn children(supervisor: u32) -> Vec<u32> {
    let path = format!("/proc/{supervisor}/task/{supervisor}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|p| p.parse().ok()).collect()
}

/// `R`, `S`, `T`, …; `None` when there is no such process.
fn state(pid: u32) -> Option<char> {
    base::process_stat::ProcessStat::of_process(pid).map(|stat| stat.state)
}

pub fn alive(pid: u32) -> bool {
    state(pid).is_some_and(|s| !matches!(s, 'Z' | 'X'))
}

pub fn is_stopped(pid: u32) -> bool {
    state(pid) == Some('T')
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

/// The logs of a run, for when it does not do what it should.
pub fn logs(out: &Path) -> String {
    let logs = std::fs::read_dir(out.join("logs")).into_iter().flatten().flatten();
    let logs = logs.filter(|log| log.path().extension().is_some_and(|e| e == "log"));
    logs.filter_map(|log| std::fs::read_to_string(log.path()).ok()).collect::<Vec<_>>().join("\n")
}

/// The rank of the run in `out` that a fault `stop:…` holds, once it does; the others get no further than it.
#[track_caller]
pub fn held(out: &Path) -> u32 {
    let mut found = None;
    let holds = within(HUNG, || {
        found = processes(out).into_iter().find(|pid| is_stopped(*pid));
        found.is_some()
    });
    assert!(holds, "no rank was held:\n{}", logs(out));
    found.expect("it is held")
}

/// Waits until a stop signal has reached a rank that is held (or until its sender has let it go on: Slurm may).
#[track_caller]
pub fn wait_until_asked_to_stop(rank: u32) {
    let asked = within(HUNG, || stop_signal_waits(rank) || !is_stopped(rank));
    assert!(asked, "no stop signal came to the rank that is held");
}

/// Lets a held rank go on once it is asked to stop, which it then learns before its next step: such a request can't come after the
/// run's end, whatever the machine does meanwhile.
#[track_caller]
pub fn release_when_asked_to_stop(rank: u32) {
    wait_until_asked_to_stop(rank);
    kill(rank, Signal::CONT);
}

fn stop_signal_waits(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|l| l.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    let of = |signal: Signal| 1u64 << (signal.as_raw() - 1);
    pending & (of(Signal::TERM) | of(Signal::INT) | of(Signal::USR1)) != 0
}
