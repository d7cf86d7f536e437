//! The children's processes: each is `ddp-run train` of this program, with its output in a log. As a supervisor's workers they
//! lead separate process groups and die with this process (Linux), and their workers with them.

use super::prepare::Prepared;
use base::error::{Error, IoContext, Result};
use launch::clusters::{Launcher, quoted};
use launch::{ExitCode, Signal, Signals, StopFlag, bind_to_supervisor, own_program, wait_for};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal as Kill, kill_process};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The folder of the children's logs in the sweep's.
pub const LOGS: &str = "logs";
/// Signals within this time of the first are the same request.
const DEBOUNCE: Duration = Duration::from_millis(250);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// On request, saved.
    Stopped,
    /// With this exit code, if it has one.
    Failed(Option<i32>),
}

/// What has happened since the last call.
#[derive(Debug, Default)]
pub struct Happened {
    /// A stop signal has arrived.
    pub stop: bool,
    pub ended: Vec<(usize, End)>,
}

pub struct Children<'a> {
    prepared: &'a Prepared,
    program: PathBuf,
    signals: Signals,
    running: Vec<(usize, Child)>,
    /// When the first stop signal arrived.
    asked: Option<Instant>,
    /// They were asked to stop.
    stopping: bool,
}

impl<'a> Children<'a> {
    /// From now on signals arrive here.
    pub fn new(prepared: &'a Prepared, stop: &StopFlag) -> Result<Self> {
        let (program, signals) = (own_program()?, Signals::new(stop)?);
        Ok(Self { prepared, program, signals, running: Vec::new(), asked: None, stopping: false })
    }

    /// Starts child number `at` on its slot, to the end of a rung.
    ///
    /// # Errors
    /// The process or its log can't be created.
    pub fn start(&mut self, at: usize, slot: usize, rung: usize) -> Result<()> {
        let arguments = self.prepared.arguments(at, rung);
        let log = self.prepared.log_of(at);
        let mut output =
            base::files::open_with(&log, File::options().create(true).append(true)).doing("open", &log)?;
        let words: Vec<String> = arguments.iter().map(|word| quoted(word)).collect();
        writeln!(output, "$ ddp-run {}", words.join(" ")).doing("write", &log)?;
        let mut command = Command::new(&self.program);
        // It is a separate run, whatever started this sweep.
        for name in Launcher::ALL.into_iter().flat_map(Launcher::variables) {
            command.env_remove(name);
        }
        if let Some(devices) = &self.prepared.children[at].share.devices[slot] {
            command.env("CUDA_VISIBLE_DEVICES", devices);
        }
        let errors = output.try_clone().doing("open", &log)?;
        command.args(&arguments).stdin(Stdio::null()).stdout(output).stderr(errors);
        bind_to_supervisor(&mut command, None);
        let child = command.spawn().doing("start", &self.program)?;
        self.running.push((at, child));
        Ok(())
    }

    /// Waits until a child has ended or a stop signal has arrived.
    pub fn wait(&mut self) -> Result<Happened> {
        let mut happened = Happened { ended: self.ended()?, stop: false };
        if happened.ended.is_empty() {
            wait_for(&mut [PollFd::from_borrowed_fd(self.signals.fd(), PollFlags::IN)], None)?;
            happened.ended = self.ended()?;
        }
        for signal in self.signals.pending() {
            match signal {
                Signal::Stop(_) => happened.stop |= self.stop_signal(),
                Signal::Pause => self.pause(),
            }
        }
        Ok(happened)
    }

    /// Asks the children to save and end.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.signal(Kill::TERM);
    }

    /// The first one stops the sweep; a later one ends the children at once, and the sweep with them.
    fn stop_signal(&mut self) -> bool {
        match self.asked {
            None => self.asked = Some(Instant::now()),
            Some(first) if first.elapsed() > DEBOUNCE => {
                self.running.iter_mut().for_each(|(_, child)| drop(child.kill()));
            }
            Some(_) => {}
        }
        true
    }

    /// Ctrl-Z: the children are paused and continued with this process.
    fn pause(&self) {
        self.signal(Kill::TSTP);
        self.signals.pause();
        self.signal(Kill::CONT);
    }

    /// None of them has been waited for, so no number belongs to another process.
    fn signal(&self, signal: Kill) {
        for (_, child) in &self.running {
            let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            let _ = pid.map(|pid| kill_process(pid, signal));
        }
    }

    fn ended(&mut self) -> Result<Vec<(usize, End)>> {
        let mut ended = Vec::new();
        for (at, child) in &mut self.running {
            let status = child.try_wait();
            let status =
                status.map_err(|e| Error::internal(format!("cannot wait for a run of the sweep: {e}")))?;
            ended.extend(status.map(|status| (*at, end(status, self.stopping))));
        }
        self.running.retain(|(at, _)| ended.iter().all(|(other, _)| other != at));
        Ok(ended)
    }
}

fn end(status: ExitStatus, stopping: bool) -> End {
    const DONE: i32 = ExitCode::Done as i32;
    const STOPPED: i32 = ExitCode::Stopped as i32;
    match status.code() {
        Some(DONE) => End::Done,
        Some(STOPPED) => End::Stopped,
        // Ended by a signal: its last checkpoint continues it.
        None if stopping => End::Stopped,
        code => End::Failed(code),
    }
}

impl Prepared {
    /// The arguments of child number `at`, to the end of a rung.
    pub(super) fn arguments(&self, at: usize, rung: usize) -> Vec<String> {
        let (child, share) = (&self.children[at], &self.children[at].share);
        let mut sets: Vec<String> = child.point.iter().map(|(key, value)| format!("{key}={value}")).collect();
        sets.push(format!("name={}", child.plan.name));
        sets.extend(self.lengths.get(rung).map(|length| self.shortened(at, length)));
        if !child.plan.is_set("launch.threads") {
            sets.push(format!("launch.threads={}", share.threads));
        }
        // A requeued job would continue the sweep, not one run.
        sets.push("launch.requeue=false".to_owned());
        let path = |path: PathBuf| path.display().to_string();
        let mut all = vec!["train".to_owned(), path(self.folder.join(super::state::SPEC))];
        all.extend(sets.into_iter().flat_map(|set| ["--set".to_owned(), set]));
        all.extend(["--out".to_owned(), path(self.folder_of(at)), "--progress".into(), "plain".into()]);
        all.extend(["--nnodes".into(), "1".into(), "--nproc-per-node".into(), share.processes.to_string()]);
        all
    }

    /// The length of a rung, but at most the length of the run itself.
    fn shortened(&self, at: usize, length: &str) -> String {
        let plan = &self.children[at].plan;
        let (key, of_rung) = length.split_once('=').unwrap_or((length, ""));
        let of_rung: u64 = of_rung.parse().unwrap_or(u64::MAX);
        let own = if key == "train.max_steps" { plan.train.max_steps } else { plan.train.stop_after };
        format!("{key}={}", own.map_or(of_rung, |own| own.min(of_rung)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn what_a_signal_ended_is_stopped_only_if_it_was_asked_to() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!((end(exited(0), false), end(exited(75), false)), (End::Done, End::Stopped));
        assert_eq!(
            (end(exited(92), true), end(exited(1), false)),
            (End::Failed(Some(92)), End::Failed(Some(1)))
        );
        let killed = ExitStatus::from_raw(9);
        assert_eq!((end(killed, false), end(killed, true)), (End::Failed(None), End::Stopped));
    }
}
