//! The processes of a measurement, as seen by their parent: it starts them and reads rank 0's rows; when one fails,
//! it ends the others and reports the culprit.

use super::measure::Timing;
use super::messages::Message;
use super::plan::{Case, Plan};
use base::error::{Error, ErrorKind, IoContext, Result};
use collectives::rendezvous::Secret;
use launch::{
    Controller, Endpoint, Handoff, Inbox, Output, Policy, Process, ProcessSet, RankPosition, Recall, Signals,
    Verdict, WorkerStatus, describe,
};
use std::io::{self, PipeReader};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Time for the others to end after the first failure.
const GRACE: Duration = Duration::from_secs(2);

/// Starts `program bench-worker` once per rank, and reads the rows of `cases` until all ranks are done. Call it from
/// the main thread: the workers die with the calling thread.
pub fn rows(
    plan: &Plan,
    program: &Path,
    cases: &[Case],
    on_row: &mut dyn FnMut(&Case, &Timing) -> Result<()>,
) -> Result<()> {
    let cannot = |e: io::Error| Error::internal(format!("cannot listen on loopback: {e}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(cannot)?;
    let port = listener.local_addr().map_err(cannot)?.port();
    let (mut listener, secret) = (Some(listener), Secret::generate()?);
    let pipes: Vec<_> =
        (0..plan.world).map(|_| io::pipe()).collect::<io::Result<_>>().doing("make a pipe to", program)?;
    let (outputs, inputs): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
    let mut inputs = inputs.into_iter();
    // Called once per rank, in rank order.
    let mut start = |rank: usize| {
        let listener = listener.take();
        let place = RankPosition::on_one_node(rank, plan.world);
        let endpoint = match &listener {
            Some(listener) => Endpoint::inherited(listener)?,
            None => Endpoint::Connect { host: Ipv4Addr::LOCALHOST.to_string(), port },
        };
        let mut handoff = Handoff::new(place, endpoint, secret.clone(), plan.clone());
        handoff.run_id = format!("bench-{}", std::process::id());
        let mut command = Command::new(program);
        command.arg("bench-worker");
        let output = inputs.next().map_or(Output::Inherit, Output::Pipe);
        Process::start(command, Some(handoff.to_line()?), output, listener).doing("start", program)
    };
    // The workers' own deadlines expire first; this one is for a worker that does not observe them.
    let mut monitor = Monitor::new(outputs, cases, plan.timeout() * 3 + plan.budget() * 2, on_row)?;
    let set = ProcessSet::new(plan.world, 0, Policy { grace: GRACE, ..Policy::default() });
    let over = set.run(&mut start, &mut Signals::of_ends()?, &mut monitor)?;
    monitor.read_messages();
    let ends: Vec<_> = over.state.ends().into_iter().map(|end| end.map(|end| &end.status)).collect();
    monitor.outcome(over.verdict, &ends)
}

/// The messages of the workers.
struct Monitor<'a> {
    inboxes: Vec<Inbox<PipeReader>>,
    cases: &'a [Case],
    measured: usize,
    on_row: &'a mut dyn FnMut(&Case, &Timing) -> Result<()>,
    /// Each rank's result: it has measured everything, or why it failed.
    results: Vec<Option<Result<()>>>,
    /// When the last message came.
    at: Instant,
    patience: Duration,
    /// Why the measurement must end, if not because a worker ended.
    failure: Option<Error>,
}

impl<'a> Monitor<'a> {
    fn new(
        outputs: Vec<PipeReader>,
        cases: &'a [Case],
        patience: Duration,
        on_row: &'a mut dyn FnMut(&Case, &Timing) -> Result<()>,
    ) -> Result<Self> {
        let cannot = |e| Error::internal(format!("cannot read the workers' output: {e}"));
        let results = outputs.iter().map(|_| None).collect();
        let inbox = |pipe: PipeReader| {
            rustix::io::ioctl_fionbio(&pipe, true)?;
            Ok(Inbox::new(pipe))
        };
        let inboxes = outputs.into_iter().map(inbox).collect::<io::Result<_>>().map_err(cannot)?;
        Ok(Self { inboxes, cases, measured: 0, on_row, results, at: Instant::now(), patience, failure: None })
    }

    fn read_messages(&mut self) {
        for rank in 0..self.inboxes.len() {
            for line in self.inboxes[rank].lines() {
                self.at = Instant::now();
                if self.failure.is_none() {
                    self.failure = self.handle(rank, &line).err();
                }
            }
        }
    }

    fn handle(&mut self, rank: usize, line: &[u8]) -> Result<()> {
        match serde_json::from_slice(line) {
            Ok(Message::Row(timing)) if rank == 0 && self.measured < self.cases.len() => {
                (self.on_row)(&self.cases[self.measured], &timing)?;
                self.measured += 1;
            }
            Ok(Message::Done) => self.results[rank] = Some(Ok(())),
            Ok(Message::Failed { code, message }) => {
                self.results[rank] = Some(Err(Error::new(code.error_kind(), message)))
            }
            Ok(message) => return Err(self.blame(rank, &format!("sent {message:?} out of order"))),
            // No worker writes anything else.
            Err(_) => {
                let text = String::from_utf8_lossy(line);
                return Err(self.blame(rank, &format!("wrote to its standard output: {text}")));
            }
        }
        Ok(())
    }

    fn blame(&self, rank: usize, how: &str) -> Error {
        Error::new(ErrorKind::WorkerFailed, format!("rank {rank} {how}{}", self.during()))
    }

    fn during(&self) -> String {
        let case = self.cases.get(self.measured);
        case.map_or_else(|| " after the last row".into(), |c| format!(" while measuring {c}"))
    }

    /// The one error that all the ends amount to, if any.
    fn outcome(mut self, verdict: Verdict, ends: &[Option<&WorkerStatus>]) -> Result<()> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let undone = self.results.iter().position(|words| !matches!(words, Some(Ok(()))));
        let Some(rank) = verdict.culprit().or(undone) else {
            return match self.cases.len() {
                all if self.measured == all => Ok(()),
                all => Err(Error::internal(format!("{} of {all} rows were measured", self.measured))),
            };
        };
        Err(match (self.results[rank].take(), ends[rank]) {
            (Some(Err(own)), _) => own,
            (_, Some(WorkerStatus::NotStarted(why))) => Error::io(why.clone()),
            (_, Some(status)) => self.blame(rank, &describe(status)),
            (_, None) => self.blame(rank, "could not be killed"),
        })
    }
}

impl Controller for Monitor<'_> {
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.inboxes.iter().filter(|inbox| !inbox.is_closed()).map(|inbox| inbox.source().as_fd()).collect()
    }

    fn patience(&self) -> Option<Instant> {
        self.failure.is_none().then(|| self.at + self.patience)
    }

    fn recalls(&mut self) -> Vec<Recall> {
        self.read_messages();
        if self.at.elapsed() >= self.patience && self.failure.is_none() {
            let silent = format!("no message for {} s{}", self.patience.as_secs(), self.during());
            self.failure = Some(Error::new(ErrorKind::Collective, silent));
        }
        self.failure.iter().map(|_| Recall::TakeDown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::plan::tests::plan;
    use base::testing::HANG;
    use launch::FailureCause;
    use std::io::Write;

    /// The outcome of this verdict after two ranks have written these lines, and whether they were recalled.
    fn outcome(
        lines: [&str; 2],
        patience: Duration,
        verdict: Verdict,
        ends: &[Option<&WorkerStatus>],
    ) -> (Error, bool) {
        let cases = plan().all_cases();
        let (outputs, inputs): (Vec<_>, Vec<_>) =
            [io::pipe().unwrap(), io::pipe().unwrap()].into_iter().unzip();
        inputs.iter().zip(lines).for_each(|(mut input, lines)| input.write_all(lines.as_bytes()).unwrap());
        let mut on_row = |_: &Case, _: &Timing| Ok(());
        let mut monitor = Monitor::new(outputs, &cases, patience, &mut on_row).unwrap();
        let recalled = !monitor.recalls().is_empty();
        (monitor.outcome(verdict, ends).unwrap_err(), recalled)
    }

    #[test]
    fn reports_the_error_of_a_rank_or_how_it_ended() {
        let blamed = |culprit, cause| Verdict::Failed { culprit, cause };
        let killed = WorkerStatus::Signaled { signal: 9, core_dumped: false };
        let lost = "{\"kind\":\"failed\",\"code\":\"Collective\",\"message\":\"rank 1 is gone\"}\n";
        let (error, recalled) =
            outcome([lost, ""], HANG, blamed(1, FailureCause::Other), &[Some(&killed), Some(&killed)]);
        let expected = "rank 1 was killed by signal 9 (SIGKILL; often the kernel's out-of-memory killer) while measuring 4 B of f32, \
                        algorithm auto, transport tcp";
        assert_eq!((error.kind, &*error.message, recalled), (ErrorKind::WorkerFailed, expected, false));
        let (error, _) = outcome([lost, ""], HANG, blamed(0, FailureCause::PeerLost), &[Some(&killed), None]);
        assert_eq!((error.kind, &*error.message), (ErrorKind::Collective, "rank 1 is gone"));
        // Exited with 0 without having measured.
        let (well, done) = (WorkerStatus::Exited(0), Verdict::Done);
        let (error, _) = outcome(["{\"kind\":\"done\"}\n", ""], HANG, done, &[Some(&well), Some(&well)]);
        assert!(error.message.starts_with("rank 1 exited with 0 (done) while measuring 4 B"), "{error}");
        let all_done = ["{\"kind\":\"done\"}\n"; 2];
        let (error, _) = outcome(all_done, HANG, done, &[Some(&well), Some(&well)]);
        assert_eq!((error.kind, &*error.message), (ErrorKind::Internal, "0 of 4 rows were measured"));
    }

    #[test]
    fn unexpected_output_and_missing_messages_end_the_measurement() {
        let stopped = Verdict::Stopped;
        let (error, recalled) = outcome(["", "hello\n"], HANG, stopped, &[None, None]);
        assert!(error.message.starts_with("rank 1 wrote to its standard output: hello while"), "{error}");
        assert_eq!((error.kind, recalled), (ErrorKind::WorkerFailed, true));
        let (error, recalled) = outcome(["", ""], Duration::ZERO, stopped, &[None, None]);
        assert!(error.message.starts_with("no message for 0 s while measuring 4 B"), "{error}");
        assert_eq!((error.kind, recalled), (ErrorKind::Collective, true));
    }

    #[test]
    fn rejects_a_program_that_is_not_a_worker() {
        for (program, part) in [
            ("/bin/true", "exited with 0"),
            ("/bin/false", "exited with 1"),
            ("/bin/echo", "bench-worker"),
            ("/nonexistent", "cannot start /nonexistent"),
        ] {
            let cases = plan().all_cases();
            let error = rows(&plan(), Path::new(program), &cases, &mut |_, _| Ok(())).unwrap_err();
            assert!(error.message.contains(part), "{program}: {error}");
        }
    }
}
