//! The processes of a measurement, as their parent sees them: it starts them, hears rank 0's rows, and when one fails
//! or dies it ends the others and says whose doing it was. Dropping the fleet kills what is left of it.

use super::measure::Timing;
use super::plan::{Case, Plan};
use super::task::{Meeting, News, Task};
use crate::comm::rendezvous::Secret;
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::launch::{Output, Process, WorkerStatus};
use std::io::{self, BufRead, BufReader, PipeReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// After the first failure, for the others to say what they saw and to end.
const GRACE: Duration = Duration::from_secs(2);

/// What comes from a worker's standard output.
enum Heard {
    News(News),
    /// Nobody writes like this but a stranger or a bug.
    Noise(String),
    /// Closed.
    End,
}

pub struct Fleet {
    processes: Vec<Process>,
    heard: Receiver<(usize, Heard)>,
    /// Which ranks have measured everything.
    done: Vec<bool>,
    grace: Duration,
}

/// The end of a worker that should not have ended.
#[derive(Clone, Debug, PartialEq)]
enum Trouble {
    /// It said why.
    Said(ExitCode, String),
    Died(String),
    Silent(Duration),
}

impl Fleet {
    /// Starts `program bench-worker`, once a rank. The workers die with the calling thread: let it be the main one.
    pub fn start(plan: &Plan, program: &Path) -> Result<Self> {
        let cannot = |e: io::Error| Error::internal(format!("cannot listen on loopback: {e}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
        let address = listener.local_addr().map_err(cannot)?.to_string();
        let secret = Secret::generate()?;
        let (sender, heard) = channel();
        let mut fleet = Self { processes: Vec::new(), heard, done: vec![false; plan.world], grace: GRACE };
        for rank in 0..plan.world {
            let first = rank == 0;
            let meeting = if first {
                Meeting::Listener(listener.as_raw_fd())
            } else {
                Meeting::Address(address.clone())
            };
            let run_id = format!("bench-{}", std::process::id());
            let task = Task { rank, plan: plan.clone(), meeting, secret: secret.clone(), run_id };
            let (output, input) = io::pipe().doing("make a pipe to", program)?;
            let mut command = Command::new(program);
            command.arg("bench-worker").stdout(input);
            command.env_remove("DDP_RUN_SECRET").env_remove("DDP_RUN_SECRET_FILE");
            let pass = first.then(|| listener.as_raw_fd());
            let process = Process::start(command, task.to_line()?, Output::Inherit, pass);
            fleet.processes.push(process.doing("start", program)?);
            listen(rank, output, sender.clone())?;
        }
        Ok(fleet)
    }

    /// Hears the rows of `cases` until all ranks are done.
    pub fn rows(
        mut self,
        plan: &Plan,
        cases: &[Case],
        mut on_row: impl FnMut(&Case, &Timing) -> Result<()>,
    ) -> Result<()> {
        // The workers' own deadlines come first; this one is for a worker that keeps none.
        let patience = plan.timeout() * 3 + plan.budget() * 2;
        let mut measured = 0;
        while self.done.contains(&false) {
            let (rank, trouble) = match self.heard.recv_timeout(patience) {
                Ok((0, Heard::News(News::Row(timing)))) if measured < cases.len() => {
                    on_row(&cases[measured], &timing)?;
                    measured += 1;
                    continue;
                }
                Ok((rank, heard)) => (rank, self.trouble(rank, heard)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    (0, Some(Trouble::Silent(patience)))
                }
            };
            if let Some(trouble) = trouble {
                return Err(self.blame(rank, trouble, cases.get(measured)));
            }
        }
        if measured < cases.len() {
            return Err(Error::internal(format!("{measured} of {} rows were measured", cases.len())));
        }
        Ok(())
    }

    /// What is wrong with `rank`, if what it said means that something is.
    fn trouble(&mut self, rank: usize, heard: Heard) -> Option<Trouble> {
        match heard {
            Heard::News(News::Failed { code, message }) => Some(Trouble::Said(code, message)),
            Heard::News(News::Done) => {
                self.done[rank] = true;
                None
            }
            Heard::News(news) => Some(Trouble::Died(format!("told {news:?} out of turn"))),
            Heard::Noise(text) => Some(Trouble::Died(format!("wrote to its standard output: {text}"))),
            Heard::End => match reap(&mut self.processes[rank], self.grace) {
                Some(WorkerStatus::Exited(0)) if self.done[rank] => None,
                Some(WorkerStatus::Exited(code)) => {
                    Some(Trouble::Died(format!("ended with exit code {code}")))
                }
                Some(WorkerStatus::Signaled { signal, .. }) => {
                    let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
                    Some(Trouble::Died(format!("was killed by signal {signal} ({name})")))
                }
                Some(WorkerStatus::NotStarted(why)) => Some(Trouble::Died(why)),
                None => Some(Trouble::Died("closed its standard output and lives on".into())),
            },
        }
    }

    /// The one error that all the ends come to.
    fn blame(&mut self, rank: usize, first: Trouble, case: Option<&Case>) -> Error {
        let mut all = vec![(rank, first)];
        let deadline = Instant::now() + self.grace;
        let mut open: usize = self.processes.len();
        while open > 0
            && let Ok((rank, heard)) =
                self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now()))
        {
            open -= usize::from(matches!(heard, Heard::End));
            if let Heard::News(News::Row(_)) = heard {
                continue;
            }
            if let Some(trouble) = self.trouble(rank, heard) {
                all.push((rank, trouble));
            }
        }
        verdict(all, case)
    }
}

/// A worker that lost its peers only echoes another's end; one that said why it failed also ends with an exit code.
fn verdict(all: Vec<(usize, Trouble)>, case: Option<&Case>) -> Error {
    let spoke: Vec<usize> =
        all.iter().filter(|(_, t)| matches!(t, Trouble::Said(..))).map(|(r, _)| *r).collect();
    let weight = |(rank, trouble): &(usize, Trouble)| match trouble {
        Trouble::Died(_) if !spoke.contains(rank) => 0,
        Trouble::Said(ExitCode::Collective | ExitCode::Rendezvous, _) => 2,
        Trouble::Said(..) => 1,
        Trouble::Silent(_) => 3,
        Trouble::Died(_) => 4,
    };
    let during = case.map_or_else(|| " after the last row".into(), |c| format!(" while measuring {c}"));
    match all.iter().min_by_key(|t| weight(t)) {
        Some((_, Trouble::Said(code, message))) => Error::new(*code, message.clone()),
        Some((rank, Trouble::Died(how))) => {
            Error::new(ExitCode::WorkerFailed, format!("rank {rank} {how}{during}"))
        }
        Some((_, Trouble::Silent(after))) => {
            Error::new(ExitCode::Collective, format!("no news for {} s{during}", after.as_secs()))
        }
        None => Error::internal("the measurement failed for no reason"),
    }
}

/// Its end; none if it goes on after it has closed its output.
fn reap(process: &mut Process, grace: Duration) -> Option<WorkerStatus> {
    let deadline = Instant::now() + grace;
    while Instant::now() < deadline {
        match process.try_reap() {
            Ok(None) => std::thread::park_timeout(Duration::from_millis(1)),
            Ok(status) => return status,
            Err(e) => return Some(WorkerStatus::NotStarted(format!("can't be waited for: {e}"))),
        }
    }
    None
}

/// Passes a worker's lines on until its output closes.
fn listen(rank: usize, output: PipeReader, heard: Sender<(usize, Heard)>) -> Result<()> {
    let read = move || {
        for line in BufReader::new(output).lines().map_while(std::io::Result::ok) {
            let heard_line = match serde_json::from_str(&line) {
                Ok(news) => Heard::News(news),
                Err(_) => Heard::Noise(line),
            };
            // The fleet is gone: its parent has what it wanted, or an error.
            if heard.send((rank, heard_line)).is_err() {
                return;
            }
        }
        let _ = heard.send((rank, Heard::End));
    };
    let thread = std::thread::Builder::new().name(format!("hear-{rank}")).spawn(read);
    thread.map(drop).map_err(|e| Error::internal(format!("cannot start a thread: {e}")))
}

/// This program's own file, which is what the workers run.
pub fn program() -> Result<PathBuf> {
    std::env::current_exe().map_err(|e| {
        Error::internal(format!("cannot find this program's own file to start workers from: {e}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;
    use crate::comm::testing::HANG;

    fn said(code: ExitCode, text: &str) -> Trouble {
        Trouble::Said(code, text.into())
    }

    #[test]
    fn the_cause_is_blamed_and_not_its_echoes() {
        let case = plan().all_cases()[0];
        let echo = (0, said(ExitCode::Collective, "rank 1 is gone"));
        let death = (1, Trouble::Died("was killed by signal 9 (SIGKILL)".into()));
        let error = verdict(vec![echo.clone(), death], Some(&case));
        assert_eq!(error.code, ExitCode::WorkerFailed);
        assert_eq!(
            error.message,
            "rank 1 was killed by signal 9 (SIGKILL) while measuring 4 B of f32, algorithm auto, transport tcp"
        );
        // One that has said why it fails ends with a code, which is not news.
        let wrong = (1, said(ExitCode::Internal, "wrong result on rank 1"));
        let ends = vec![
            echo.clone(),
            (0, Trouble::Died("ended with exit code 91".into())),
            wrong,
            (1, Trouble::Died("ended with exit code 70".into())),
        ];
        let error = verdict(ends, Some(&case));
        assert_eq!((error.code, &*error.message), (ExitCode::Internal, "wrong result on rank 1"));
        let error = verdict(vec![echo, (0, Trouble::Died("ended with exit code 91".into()))], None);
        assert_eq!((error.code, &*error.message), (ExitCode::Collective, "rank 1 is gone"));
        let error = verdict(vec![(0, Trouble::Silent(Duration::from_secs(31)))], None);
        assert_eq!(error.message, "no news for 31 s after the last row");
    }

    #[test]
    fn a_program_that_is_no_worker_is_an_error_and_no_hang() {
        for (program, part) in
            [("/bin/true", "exit code 0"), ("/bin/false", "exit code 1"), ("/bin/echo", "bench-worker")]
        {
            let mut fleet = Fleet::start(&plan(), Path::new(program)).unwrap();
            // All of them end, so nobody waits for as long.
            fleet.grace = HANG;
            let cases = plan().all_cases();
            let error = fleet.rows(&plan(), &cases, |_, _| Ok(())).unwrap_err();
            assert!(error.message.contains(part), "{program}: {error}");
        }
        assert!(Fleet::start(&plan(), Path::new("/nonexistent")).is_err());
    }
}
