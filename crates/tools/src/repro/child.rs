//! A run of this program's own binary in a folder of its own, started and watched by this process.

use base::display;
use base::error::{Error, ErrorKind, IoContext, Result};
use job::worker::{FAULT, STEP_TIMES, STOP_AT};
use launch::clusters::Launcher;
use launch::{ExitCode, ProcessStat, StopFlag, bind_to_supervisor, own_program};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Between two looks at a run.
const POLL: Duration = Duration::from_millis(10);
/// The longest wait for the workers of a run that was killed; they take milliseconds.
const GONE: Duration = Duration::from_secs(10);

/// Starts runs of one spec in one folder. Call it from the main thread: the runs die with the calling thread.
#[derive(Clone, Debug)]
pub struct Trainer {
    /// Path of the spec that the runs train.
    pub spec: PathBuf,
    /// Run folder, the value of `--out`.
    pub out: PathBuf,
    /// Where the supervisor's messages go.
    pub told: PathBuf,
    /// Further flags of `ddp-run train`.
    pub flags: Vec<String>,
    /// Environment variables that are set for the run, with their values.
    pub variables: Vec<(&'static str, String)>,
    /// Ends the wait for a run, so that what was started and written can be removed.
    pub stop: StopFlag,
}

/// A run that was started; killed with this.
pub struct Child {
    process: std::process::Child,
    begun: Instant,
    told: PathBuf,
    stop: StopFlag,
}

impl Trainer {
    /// A run of `spec` into `out`, on one node, that nobody restarts.
    pub fn new(spec: &Path, out: &Path, world: usize, stop: &StopFlag) -> Self {
        let flags = ["--nnodes", "1", "--nproc-per-node", &world.to_string()].map(str::to_owned);
        let mut told = out.as_os_str().to_owned();
        told.push(".stderr");
        Self {
            spec: spec.to_owned(),
            out: out.to_owned(),
            told: told.into(),
            flags: flags.into(),
            variables: Vec::new(),
            stop: stop.clone(),
        }
    }

    /// Appends flags of `ddp-run train`.
    pub fn flags<'a>(mut self, more: impl IntoIterator<Item = &'a str>) -> Self {
        self.flags.extend(more.into_iter().map(str::to_owned));
        self
    }

    /// Sets an environment variable of the run.
    pub fn variable(mut self, name: &'static str, value: impl ToString) -> Self {
        self.variables.push((name, value.to_string()));
        self
    }

    /// # Errors
    /// Exit code 74 or 70: the program can't be started.
    pub fn start(&self) -> Result<Child> {
        let program = own_program()?;
        let log = File::create(&self.told).doing("create", &self.told)?;
        let mut command = Command::new(&program);
        // It is a run of its own, whatever started this one, and nothing fails on purpose unless it is asked to.
        for name in Launcher::ALL.into_iter().flat_map(Launcher::variables) {
            command.env_remove(name);
        }
        for name in [FAULT, STOP_AT, STEP_TIMES] {
            command.env_remove(name);
        }
        command.arg("train").arg(&self.spec).arg("--out").arg(&self.out).args(["--progress", "none"]);
        command.args(&self.flags).envs(self.variables.iter().map(|(name, value)| (*name, value)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        bind_to_supervisor(&mut command, None);
        let process = command.spawn().doing("start", &program)?;
        Ok(Child { process, begun: Instant::now(), told: self.told.clone(), stop: self.stop.clone() })
    }
}

impl Child {
    /// Process ID of the run's supervisor.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Time since the run was started.
    pub fn age(&self) -> Duration {
        self.begun.elapsed()
    }

    /// What the supervisor has said so far.
    pub fn told(&self) -> String {
        fs::read_to_string(&self.told).unwrap_or_default()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// This process was asked to stop (75).
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if let Some(signal) = self.stop.signal() {
            return Err(Error::new(ErrorKind::Stopped, format!("stopped by signal {signal}")));
        }
        self.process.try_wait().doing("wait for the run of", &self.told)
    }

    /// Waits for the end, and calls `look` again and again, the last time after the end. `look` ends the wait with `false`; then
    /// there is no status.
    pub fn watch(&mut self, mut look: impl FnMut(&Self) -> Result<bool>) -> Result<Option<ExitStatus>> {
        loop {
            let ended = self.ended()?;
            if !look(self)? || ended.is_some() {
                return Ok(ended);
            }
            std::thread::sleep(POLL);
        }
    }

    /// The error of a run that ended as it should not have.
    pub fn failed(&self, status: ExitStatus, what: &str) -> Error {
        // Its own messages, each at the beginning of a line.
        base::status::put(format!("{}\n", display::painted(self.told().trim_end())).into_bytes());
        Error::new(kind_of(status), format!("{what} failed ({status})"))
    }
}

/// The kind of the error of a command whose run should not have ended like that: the run's, unless
/// that says nothing about the command.
fn kind_of(status: ExitStatus) -> ErrorKind {
    status.code().and_then(ExitCode::of_worker).map_or(ErrorKind::Internal, ExitCode::error_kind)
}

impl Drop for Child {
    fn drop(&mut self) {
        // Its workers die with it; until then they write to its folder, which the caller may remove.
        let workers = match self.process.try_wait() {
            Ok(None) => children(self.pid()),
            _ => Vec::new(),
        };
        let _ = self.process.kill();
        let _ = self.process.wait();
        let begun = Instant::now();
        while workers.iter().any(|(worker, _)| runs(*worker)) && begun.elapsed() < GONE {
            std::thread::sleep(POLL);
        }
    }
}

/// The children of a process and their states, as in `/proc/PID/stat`; none where there is no `/proc`.
pub fn children(parent: u32) -> Vec<(u32, char)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stats = pids.filter_map(ProcessStat::of_process).filter(|stat| stat.parent == parent);
    stats.map(|stat| (stat.pid, stat.state)).collect()
}

/// Whether it is a process that has not ended.
fn runs(pid: u32) -> bool {
    ProcessStat::of_process(pid).is_some_and(|stat| !stat.has_ended())
}

/// Whether a signal waits for a process that is stopped to go on.
pub fn waits_for(pid: u32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    pending & (1 << (signal.as_raw() - 1)) != 0
}

/// Sends a signal to a process that this one, or one that it started, has started.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid as i32) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_ends_with_the_exit_code_of_its_run() {
        use std::os::unix::process::ExitStatusExt;
        let of = |code: i32| ExitCode::from(kind_of(ExitStatus::from_raw(code << 8))) as i32;
        assert_eq!([75, 78, 91].map(of), [75, 78, 91]);
        // Done, an assertion that doesn't hold, a difference, and what no ddp-run ends with.
        assert_eq!([0, 1, 3, 101].map(of), [70; 4]);
        assert_eq!(kind_of(ExitStatus::from_raw(9)), ErrorKind::Internal);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn children_are_found_until_they_have_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let own = children(std::process::id());
        assert!(own.iter().any(|(pid, _)| *pid == child.id()) && runs(child.id()), "{own:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!runs(child.id()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_signal_waits_for_a_process_that_is_stopped() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        send(child.id(), Signal::STOP);
        let begun = Instant::now();
        while !children(std::process::id()).contains(&(child.id(), 'T')) {
            assert!(begun.elapsed().as_secs() < 60, "it is not stopped");
            std::thread::sleep(POLL);
        }
        assert!(!waits_for(child.id(), Signal::TERM));
        send(child.id(), Signal::TERM);
        assert!(waits_for(child.id(), Signal::TERM) && !waits_for(child.id(), Signal::INT));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
