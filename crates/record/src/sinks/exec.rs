//! `exec`: a program that reads the events as JSON lines.

use super::ObserverConfig;
use crate::{EventObserver, ObservedRun};
use base::display;
use base::error::{Error, IoContext, Result};
use crossbeam_channel::{Receiver, bounded};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Time before the run stops waiting in which a program that does not end is killed.
const TO_KILL: Duration = Duration::from_secs(1);
/// How long after the end of its input a program may end, and how long after its own end its last output may arrive.
const MOMENT: Duration = Duration::from_secs(1);
/// How often the end of the run is checked while the program does not read.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
/// Longer lines are logged in pieces.
const LINE: u64 = 16 << 10;

/// Starts a program and writes the lines of `metrics.jsonl` to its standard input, and before them a line with `"event": "start"`:
/// `name`, `folder`, `spec`, `set`, `run` (as `run.json`), `step`, `epochs`, `resumes` and `restarts`. Its output goes to the log of
/// rank 0.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[schemars(extend("x-changes-results" = false))]
pub struct Exec {
    /// The program and its arguments, without a shell. It runs in the folder in which the run was started. At the end of
    /// the run its input ends; it has 9 s to end too, then it is killed.
    command: Vec<String>,
}

impl ObserverConfig for Exec {
    type Observer = Bridge;

    fn problem(&self) -> Option<(&'static str, String)> {
        let is_empty = self.command.first().is_none_or(String::is_empty);
        is_empty.then(|| ("command", "is empty: expected a program and its arguments".to_owned()))
    }

    fn observer(&self) -> Bridge {
        Bridge { command: self.command.clone(), run: ObservedRun::default(), program: None, moment: MOMENT }
    }
}

pub struct Bridge {
    command: Vec<String>,
    run: ObservedRun,
    /// `None` if it could not be started or has been waited for.
    program: Option<Program>,
    /// How long it may take to end once it reads no more.
    moment: Duration,
}

struct Program {
    child: Child,
    /// `None` once it gets nothing more; the reason has been reported.
    input: Option<ChildStdin>,
    /// Disconnected when all of its output is in the log.
    logged: Receiver<()>,
}

impl EventObserver for Bridge {
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        self.run = run.clone();
        let started = Program::start(&self.command);
        self.program = Some(started.doing("start", Path::new(&self.command[0]))?);
        let mut line = json!({ "event": "start" });
        if let (Some(line), Ok(Value::Object(run))) = (line.as_object_mut(), serde_json::to_value(run)) {
            line.extend(run);
        }
        self.pass(&line)
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        self.pass(event)
    }

    fn end(&mut self) -> Result<()> {
        let Some(mut program) = self.program.take() else { return Ok(()) };
        let reported = program.input.take().is_none();
        let deadline = self.kill_at().unwrap_or_else(|| Instant::now() + MOMENT);
        let ended = program.wait(deadline);
        let killed = ended.is_none();
        if killed {
            program.kill();
        }
        // A process that it started may still hold its output.
        let _ = program.logged.recv_timeout(MOMENT);
        match ended {
            _ if reported => Ok(()),
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(self.error(&format!("ended with {status}"))),
            None => Err(self.error("did not end with its input and was killed")),
        }
    }
}

impl Bridge {
    /// Writes a line. It waits while the program does not read, but not beyond the end of the run.
    fn pass(&mut self, line: &Value) -> Result<()> {
        let until = self.run.clone();
        let give_up = || until.waits_until().is_some_and(|until| Instant::now() + TO_KILL >= until);
        let Some(program) = &mut self.program else { return Ok(()) };
        let Some(input) = &mut program.input else { return Ok(()) };
        let Err(e) = write(input, format!("{line}\n").as_bytes(), &give_up) else { return Ok(()) };
        program.input = None;
        let why = if e.kind() == io::ErrorKind::TimedOut {
            program.kill();
            "does not read its input and was killed".to_owned()
        } else {
            match program.wait(Instant::now() + self.moment) {
                Some(status) => format!("has ended ({status}) and gets no more events"),
                None => format!("gets no more events: {e}"),
            }
        };
        Err(self.error(&why))
    }

    fn kill_at(&self) -> Option<Instant> {
        self.run.waits_until()?.checked_sub(TO_KILL)
    }

    fn error(&self, what: &str) -> Error {
        let words: Vec<String> = self.command.iter().map(|word| display::name(word)).collect();
        Error::data(format!("`{}` {what}; logs/rank-0.log has its output", words.join(" ")))
    }
}

impl Program {
    fn start(command: &[String]) -> io::Result<Self> {
        let (output, both) = io::pipe()?;
        let mut to_start = Command::new(&command[0]);
        to_start.args(&command[1..]).stdin(Stdio::piped()).stdout(both.try_clone()?).stderr(both);
        // The terminal sends Ctrl-C to its foreground group: the program is to see the run's last events.
        let mut child = to_start.process_group(0).spawn()?;
        // It has the other ends of the pipe.
        drop(to_start);
        let input = child.stdin.take();
        if let Some(input) = &input {
            fcntl_setfl(input, fcntl_getfl(input)? | OFlags::NONBLOCK)?;
        }
        let (end, logged) = bounded::<()>(0);
        let name = Path::new(&command[0]).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let log = move || {
            let _end = end;
            log(&name, output);
        };
        std::thread::Builder::new().name("observer-output".to_owned()).spawn(log)?;
        Ok(Self { child, input, logged })
    }

    /// How it ends, if it does so in time.
    fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
                _ => return None,
            }
        }
    }

    /// Kills it and the processes that it has started.
    fn kill(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Writes to a pipe that does not block.
///
/// # Errors
/// `TimedOut` once `give_up` holds and the pipe is not read; an error of the pipe.
fn write(input: &mut ChildStdin, mut bytes: &[u8], give_up: &dyn Fn() -> bool) -> io::Result<()> {
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if give_up() {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                // Interrupted or not, the next write reports it.
                let _ = poll(&mut [PollFd::new(input, PollFlags::OUT)], Some(&LOOK));
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Passes lines on to the log until the output ends.
fn log(name: &str, output: PipeReader) {
    let (mut output, mut line) = (BufReader::new(output), Vec::new());
    while let Ok(n) = output.by_ref().take(LINE).read_until(b'\n', &mut line)
        && n > 0
    {
        let text = String::from_utf8_lossy(&line);
        tracing::info!("{name}: {}", display::piece(text.trim_end()));
        line.clear();
    }
}

#[cfg(test)]
#[path = "exec_tests.rs"]
mod tests;
