//! The workers of one generation on this node, as processes: carries out the decisions of [`state`](super::state).
//!
//! It waits in one `poll` for signals (including SIGCHLD), for its controller, for space in control pipes, and for
//! the next timer. Each worker leads its own process group, so Ctrl-C reaches it only through the supervisor; Ctrl-Z
//! pauses the workers together with the supervisor.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::failure::Evidence;
use super::generation::Controller;
use super::signals::{Signal, Signals, wait_for};
use super::state::{Action, Event, GenerationState, Policy, Timer};
use super::timers::Timers;
use super::verdict::{Verdict, WorkerStatus};
use super::worker::Process;
use base::error::{Error, Result};

/// How often the children of a worker that has ended are looked for.
const LINGERING_POLL: Duration = Duration::from_millis(50);

/// Starts and describes the workers, by local rank.
pub trait Workers {
    fn start(&mut self, local: usize) -> Result<Process>;

    /// Evidence about a worker that has ended, besides its exit status.
    fn ended(&mut self, _local: usize, _pid: u32, _status: &WorkerStatus) -> Evidence {
        Evidence::new(None)
    }
}

impl<F: FnMut(usize) -> Result<Process>> Workers for F {
    fn start(&mut self, local: usize) -> Result<Process> {
        self(local)
    }
}

/// Processes that are started one after another and end together. Dropping it kills those that are still running.
pub struct ProcessSet {
    /// The global rank of the first process, for messages.
    first_rank: usize,
    policy: Policy,
    processes: Vec<Option<Process>>,
    pids: Vec<Option<u32>>,
    timers: Timers<Timer>,
    /// The last stop signal; SIGTERM for a stop that another node requests.
    stop_signal: rustix::process::Signal,
    /// When a signal requested a stop.
    signalled_at: Option<Instant>,
}

/// How the workers ended.
pub struct Finished {
    pub verdict: Verdict,
    /// Includes each worker's end.
    pub state: GenerationState,
    pub(crate) pids: Vec<Option<u32>>,
    /// When a signal requested a stop.
    pub(crate) signalled_at: Option<Instant>,
}

impl ProcessSet {
    /// `count` is at least 1.
    pub fn new(count: usize, first_rank: usize, policy: Policy) -> Self {
        Self {
            first_rank,
            policy,
            processes: (0..count).map(|_| None).collect(),
            pids: vec![None; count],
            timers: Timers::default(),
            stop_signal: rustix::process::Signal::TERM,
            signalled_at: None,
        }
    }

    /// Starts the workers and runs them until all have ended. They die with the calling thread.
    pub fn run(
        mut self,
        workers: &mut dyn Workers,
        signals: &mut Signals,
        controller: &mut dyn Controller,
    ) -> Result<Finished> {
        let mut state = GenerationState::new(self.processes.len(), self.policy);
        let mut events = VecDeque::from([Event::Start]);
        queue_recalls(controller, &mut events);
        loop {
            while let Some(event) = events.pop_front() {
                let (next, actions) = state.step(event);
                state = next;
                for action in actions {
                    match action {
                        Action::Spawn(local) => events.push_back(self.start(local, workers)),
                        Action::Terminate(local) => {
                            let signal = self.stop_signal;
                            self.on_worker(local, |worker| worker.terminate(signal));
                        }
                        Action::TakeDown(local) => self.on_worker(local, Process::take_down),
                        Action::Kill(local) => self.on_worker(local, Process::kill),
                        Action::SetTimer(timer, after) => self.timers.set(timer, after),
                        Action::Finish(verdict) => {
                            self.processes.iter_mut().filter_map(Option::take).for_each(Process::abandon);
                            return Ok(Finished {
                                verdict,
                                state,
                                pids: self.pids,
                                signalled_at: self.signalled_at,
                            });
                        }
                    }
                }
            }
            self.wait(workers, signals, controller, &mut events)?;
        }
    }

    fn start(&mut self, local: usize, workers: &mut dyn Workers) -> Event {
        match workers.start(local) {
            Ok(process) => {
                tracing::debug!(rank = self.first_rank + local, pid = process.id(), "worker started");
                self.pids[local] = Some(process.id());
                self.processes[local] = Some(process);
                Event::WorkerStarted(local)
            }
            Err(e) => Event::WorkerSpawnFailed { rank: local, error: e.message },
        }
    }

    fn on_worker(&mut self, local: usize, operation: impl FnOnce(&mut Process)) {
        if let Some(process) = &mut self.processes[local] {
            operation(process);
        }
    }

    /// Blocks until something happens, and adds it to `events`: stop requests first, because they explain exits;
    /// exits before timers, because they may cancel them.
    fn wait(
        &mut self,
        workers: &mut dyn Workers,
        signals: &mut Signals,
        controller: &mut dyn Controller,
        events: &mut VecDeque<Event>,
    ) -> Result<()> {
        self.poll(signals, controller)?;
        for signal in signals.pending() {
            match signal {
                Signal::Pause => self.pause(signals),
                Signal::Stop(stop) => {
                    self.stop_requested(stop, controller);
                    events.push_back(Event::StopRequested);
                }
            }
        }
        queue_recalls(controller, events);
        for (local, slot) in self.processes.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            let rank = self.first_rank + local;
            process.send();
            let ended = process.try_reap();
            if let Some(status) =
                ended.map_err(|e| Error::internal(format!("cannot wait for rank {rank}: {e}")))?
            {
                tracing::debug!(rank, ?status, "worker ended");
                let evidence = workers.ended(local, process.id(), &status);
                *slot = None;
                events.push_back(Event::WorkerExited { rank: local, status, evidence });
            }
        }
        events.extend(self.timers.fired().map(Event::TimerFired));
        Ok(())
    }

    fn poll(&self, signals: &Signals, controller: &dyn Controller) -> Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN)];
        fds.extend(controller.fds().into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let unsent = self.processes.iter().flatten().filter_map(Process::to_send);
        fds.extend(unsent.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let lingering = self.processes.iter().flatten().any(Process::is_lingering);
        let look = lingering.then(|| Instant::now() + LINGERING_POLL);
        wait_for(&mut fds, self.timers.next().into_iter().chain(controller.patience()).chain(look).min())
    }

    fn stop_requested(&mut self, signal: i32, controller: &mut dyn Controller) {
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a stop signal");
        let now = Instant::now();
        self.stop_signal = rustix::process::Signal::from_named_raw(signal).unwrap_or(self.stop_signal);
        match self.signalled_at {
            None => {
                let what = if self.policy.saves { "save and stop" } else { "stop" };
                tracing::warn!("{name}: the workers {what}; a second signal kills them");
                self.signalled_at = Some(now);
                controller.stop_requested(false);
            }
            Some(at) if now.duration_since(at) > self.policy.debounce => controller.stop_requested(true),
            Some(_) => {}
        }
    }

    /// Ctrl-Z: the terminal stops only the supervisor, because the workers are in other process groups. Returns on SIGCONT.
    fn pause(&self, signals: &Signals) {
        self.processes.iter().flatten().for_each(Process::pause);
        signals.pause();
        self.processes.iter().flatten().for_each(Process::resume);
    }
}

fn queue_recalls(controller: &mut dyn Controller, events: &mut VecDeque<Event>) {
    events.extend(controller.recalls().into_iter().map(Event::Recalled));
}
