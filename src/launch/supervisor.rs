//! One generation of this node's workers: carries out what [`state`](super::state) decides, on real processes.
//!
//! It waits in one `poll` for signals (SIGCHLD among them), for its controller, for room in control pipes, and
//! for the next timer. A worker leads its own process group, so Ctrl-C reaches it through the supervisor only; Ctrl-Z
//! pauses the workers with the supervisor.

use std::collections::VecDeque;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::cores;
use super::failure::{self, Evidence, Failure};
use super::generation::{Controller, Part, Recall};
use super::handoff::{Endpoint, Handoff, Place};
use super::local::{FirstRankOutput, LocalLaunch};
use super::logs;
use super::report::{self, Failed};
use super::signals::{Signal, Signals, wait_for};
use super::state::{Action, Event, State, Timer};
use super::timers::Timers;
use super::verdict::{End, Verdict};
use super::worker::{Output, Process};
use crate::comm::rendezvous::Secret;
use crate::error::{Error, ExitCode, IoContext, Result};

/// The workers of one generation on this node, and what it takes to start and to watch them.
pub struct Fleet<'a> {
    launch: &'a LocalLaunch,
    part: Part,
    secret: Secret,
    threads: usize,
    /// Rank 0's rendezvous socket; ours until rank 0 has it. A copy kept longer would let the others connect to a
    /// rank 0 that is dead. `None` where rank 0 is elsewhere, or alone.
    listener: Option<TcpListener>,
    /// How the other ranks reach it.
    endpoint: Endpoint,
    workers: Vec<Option<Process>>,
    pids: Vec<Option<u32>>,
    timers: Timers<Timer>,
    /// The signal that asked for a stop, and when.
    asked: Option<(i32, Instant)>,
}

/// How a generation ended on this node.
pub struct Ended {
    /// `Done` or `Stopped`, or what failed.
    pub end: std::result::Result<ExitCode, Failed>,
    /// The signal that asked for the stop, and when.
    pub asked: Option<(i32, Instant)>,
    /// Each worker's end; `None` for one that was not started before the stop.
    pub ends: Vec<Option<End>>,
}

impl<'a> Fleet<'a> {
    /// Ranks reach rank 0 at `endpoint`; it takes `listener`.
    pub fn new(
        launch: &'a LocalLaunch,
        part: Part,
        listener: Option<TcpListener>,
        endpoint: Endpoint,
        secret: Secret,
    ) -> Result<Self> {
        let made = std::fs::create_dir_all(&launch.log_dir).doing("create the log folder", &launch.log_dir);
        made.map_err(|e| e.hint("`--out DIR` writes elsewhere"))?;
        let nproc = launch.nproc;
        let threads = launch
            .threads_per_worker
            .unwrap_or_else(|| cores::threads_per_worker(cores::usable_cores(), nproc));
        let mut fleet = Self {
            launch,
            part,
            secret,
            threads,
            listener,
            endpoint,
            workers: (0..nproc).map(|_| None).collect(),
            pids: vec![None; nproc],
            timers: Timers::default(),
            asked: None,
        };
        // Here, because a job that can't be handed over is the job's fault, and not a worker that won't start.
        fleet.handoff(0)?.to_line()?;
        if fleet.part.world_size == 1 {
            fleet.listener = None;
        }
        Ok(fleet)
    }

    /// Runs the generation to its end: all workers are gone when this returns.
    pub fn drive(&mut self, signals: &mut Signals, controller: &mut dyn Controller) -> Result<Ended> {
        let mut state = State::new(self.launch.nproc, self.launch.policy);
        let mut events = VecDeque::from([Event::Start]);
        hear(controller, &mut events);
        loop {
            while let Some(event) = events.pop_front() {
                let (next, actions) = state.step(event);
                state = next;
                for action in actions {
                    match action {
                        Action::Spawn(local) => events.push_back(self.spawn(local)),
                        Action::Terminate(local) => self.on_worker(local, Process::terminate),
                        Action::TakeDown(local) => self.on_worker(local, Process::take_down),
                        Action::Kill(local) => self.on_worker(local, Process::kill),
                        Action::SetTimer(timer, after) => self.timers.set(timer, after),
                        Action::Finish(verdict) => return Ok(self.conclude(&state, verdict)),
                    }
                }
            }
            self.wait(signals, controller, &mut events)?;
        }
    }

    fn spawn(&mut self, local: usize) -> Event {
        match self.start_worker(local) {
            Ok(process) => {
                tracing::debug!(rank = self.part.first_rank + local, pid = process.id(), "worker started");
                self.pids[local] = Some(process.id());
                self.workers[local] = Some(process);
                Event::WorkerStarted(local)
            }
            Err(e) => Event::WorkerSpawnFailed { rank: local, error: e.message },
        }
    }

    fn start_worker(&mut self, local: usize) -> Result<Process> {
        let handoff = self.handoff(local)?;
        let rank = handoff.place.rank;
        let line = handoff.to_line()?;
        let log = logs::open_with_header(&handoff)?;
        failure::clear(&self.launch.log_dir, rank);
        let mut command = Command::new(&self.launch.program);
        command.args(&self.launch.args);
        // They are for externally launched workers; nothing in these needs them.
        command.env_remove("DDP_RUN_SECRET").env_remove("DDP_RUN_SECRET_FILE");
        command.envs(cores::thread_variables(self.threads, &|name| std::env::var(name).ok()));
        let inherit = rank == 0 && self.launch.first_rank_output == FirstRankOutput::Inherit;
        let output = if inherit { Output::Inherit } else { Output::Log(log) };
        // Taken for rank 0, and closed here once that has its copy.
        let listener = if rank == 0 { self.listener.take() } else { None };
        Process::start(command, line, output, listener.as_ref().map(|l| l.as_raw_fd()))
            .doing("start", &self.launch.program)
    }

    fn handoff(&self, local: usize) -> Result<Handoff> {
        let rank = self.part.first_rank + local;
        let place = Place {
            rank,
            local_rank: local,
            world_size: self.part.world_size,
            local_world_size: self.launch.nproc,
            node_rank: self.part.node,
            nnodes: self.part.nnodes,
        };
        let endpoint = match &self.listener {
            Some(listener) if rank == 0 && self.part.world_size > 1 => {
                let addr = listener.local_addr().map_err(|e| Error::internal(e.to_string()))?;
                Endpoint::Inherited { fd: listener.as_raw_fd(), addr }
            }
            _ => self.endpoint.clone(),
        };
        let mut handoff = Handoff::new(place, endpoint, self.secret.clone(), self.launch.job.clone());
        handoff.threads = self.threads;
        handoff.run_id = self.part.run_id.clone();
        handoff.generation = self.part.generation;
        handoff.attempt = self.part.attempt;
        handoff.reason = self.part.reason.clone();
        handoff.log_dir = self.launch.log_dir.clone();
        Ok(handoff)
    }

    fn on_worker(&mut self, rank: usize, deed: fn(&mut Process)) {
        if let Some(process) = &mut self.workers[rank] {
            deed(process);
        }
    }

    /// Blocks until something happens, and puts it into `events`: stop requests first, because they explain exits, and
    /// exits before timers, because they may make them void.
    fn wait(
        &mut self,
        signals: &mut Signals,
        controller: &mut dyn Controller,
        events: &mut VecDeque<Event>,
    ) -> Result<()> {
        self.poll(signals, controller)?;
        for signal in signals.pending() {
            match signal {
                Signal::Pause => self.pause(signals),
                Signal::Stop(stop) => {
                    let name = signal_hook::low_level::signal_name(stop).unwrap_or("a stop signal");
                    let now = Instant::now();
                    match self.asked {
                        None => {
                            tracing::warn!("{name}: the workers save and stop; once more ends them at once");
                            self.asked = Some((stop, now));
                            controller.stop_requested(false);
                        }
                        Some((_, at)) if now.duration_since(at) > self.launch.policy.debounce => {
                            controller.stop_requested(true);
                        }
                        Some(_) => {}
                    }
                    events.push_back(Event::StopRequested);
                }
            }
        }
        hear(controller, events);
        for (local, slot) in self.workers.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            let rank = self.part.first_rank + local;
            process.send();
            let ended = process.try_reap();
            if let Some(status) =
                ended.map_err(|e| Error::internal(format!("cannot wait for rank {rank}: {e}")))?
            {
                tracing::debug!(rank, ?status, "worker ended");
                let note = Failure::read(&self.launch.log_dir, rank, process.id());
                *slot = None;
                failure::sweep(&self.launch.log_dir, rank);
                let evidence = Evidence::of(note.as_ref());
                events.push_back(Event::WorkerExited { rank: local, status, evidence });
            }
        }
        events.extend(self.timers.fired().map(Event::TimerFired));
        Ok(())
    }

    fn poll(&self, signals: &Signals, controller: &dyn Controller) -> Result<()> {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.fd(), PollFlags::IN)];
        fds.extend(controller.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let unsent = self.workers.iter().flatten().filter_map(Process::to_send);
        fds.extend(unsent.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        wait_for(&mut fds, self.timers.next())
    }

    /// Ctrl-Z: the workers are in other process groups, so the terminal stops only us. Returns when we are continued.
    fn pause(&self, signals: &Signals) {
        self.workers.iter().flatten().for_each(Process::pause);
        signals.pause();
        self.workers.iter().flatten().for_each(Process::resume);
    }

    fn conclude(&mut self, state: &State, verdict: Verdict) -> Ended {
        self.workers.iter_mut().filter_map(Option::take).for_each(Process::abandon);
        let end = match (verdict.culprit, verdict.code) {
            (None, ExitCode::Done) => Ok(ExitCode::Done),
            (None, _) => Ok(ExitCode::Stopped),
            (Some(culprit), code) => {
                let ranks: Vec<report::Rank<'_>> = state
                    .ends()
                    .into_iter()
                    .zip(&self.pids)
                    .map(|(end, pid)| report::Rank { end, class: end.map(|e| state.class(e)), pid: *pid })
                    .collect();
                let place = report::Scene {
                    first_rank: self.part.first_rank,
                    world_size: self.part.world_size,
                    log_dir: &self.launch.log_dir,
                };
                Err(report::worker_failed(&ranks, culprit, code, place))
            }
        };
        Ended { end, asked: self.asked, ends: state.ends().into_iter().map(|end| end.cloned()).collect() }
    }
}

fn hear(controller: &mut dyn Controller, events: &mut VecDeque<Event>) {
    events.extend(controller.recalls().into_iter().map(|Recall { save }| Event::Recalled { save }));
}
