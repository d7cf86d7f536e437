//! The supervisor's loop: carries out what [`state`](super::state) decides, on real processes.
//!
//! It waits in one `poll` for signals (SIGCHLD among them), for room in control pipes, and for the next timer. A worker
//! leads its own process group, so Ctrl-C reaches it through the supervisor only; Ctrl-Z pauses the workers with
//! the supervisor.

use std::collections::{BTreeMap, VecDeque};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCHLD, SIGTSTP};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use super::cores;
use super::failure;
use super::handoff::{Endpoint, Handoff, Place};
use super::local::{FirstRankOutput, LocalLaunch, Outcome};
use super::logs;
use super::os;
use super::report;
use super::secret::Secret;
use super::state::{Action, Event, State, Timer};
use super::stop::STOP_SIGNALS;
use super::verdict::Verdict;
use super::worker::{Output, Process};
use crate::error::{Error, ExitCode, IoContext, Result};

/// Signals as readable events.
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    pub(super) fn new() -> Result<Self> {
        let cannot = |e| Error::internal(format!("cannot watch for signals: {e}"));
        let all = STOP_SIGNALS.into_iter().chain([SIGTSTP, SIGCHLD]);
        let (read, write) = UnixStream::pair().map_err(cannot)?;
        let delivery = SignalDelivery::with_pipe(read, write, SignalOnly, all.clone()).map_err(cannot)?;
        os::unblock(&all.collect::<Vec<_>>()).map_err(cannot)?;
        Ok(Self(delivery))
    }
}

/// The workers of a run and what it takes to start and to watch them.
pub(super) struct Fleet {
    launch: LocalLaunch,
    secret: Secret,
    threads: usize,
    /// Rank 0's rendezvous socket; ours until rank 0 has it. A copy kept longer would let the others connect to a
    /// rank 0 that is dead. `None` for a single worker.
    listener: Option<TcpListener>,
    endpoints: Option<(Endpoint, Endpoint)>,
    workers: Vec<Option<Process>>,
    pids: Vec<Option<u32>>,
    timers: BTreeMap<Instant, Timer>,
    stopped_by: Option<i32>,
}

impl Fleet {
    pub(super) fn new(mut launch: LocalLaunch) -> Result<Self> {
        std::fs::create_dir_all(&launch.log_dir).map_err(|e| {
            Error::checkpoint(format!("cannot create the log folder {}: {e}", launch.log_dir.display()))
                .hint("`--out DIR` writes elsewhere")
        })?;
        let nproc = launch.nproc;
        let threads = launch
            .threads_per_worker
            .unwrap_or_else(|| cores::threads_per_worker(cores::usable_cores(), nproc));
        if launch.run_id.is_empty() {
            launch.run_id = Secret::random()?.to_hex()[..12].to_string();
        }
        let mut fleet = Self {
            secret: Secret::random()?,
            threads,
            listener: None,
            endpoints: None,
            workers: (0..nproc).map(|_| None).collect(),
            pids: vec![None; nproc],
            timers: BTreeMap::new(),
            stopped_by: None,
            launch,
        };
        if nproc > 1 {
            fleet.listen()?;
        }
        // Here, because a job that can't be handed over is the job's fault, and not a worker that won't start.
        fleet.handoff(0).to_line()?;
        Ok(fleet)
    }

    /// The port is the system's choice and is ours from here on: nobody can take it before rank 0 has it.
    fn listen(&mut self) -> Result<()> {
        let bind = self.launch.bind;
        let cannot = |e| {
            Error::new(ExitCode::Rendezvous, format!("cannot listen on {bind}: {e}"))
                .hint("it has to be an address of this machine")
        };
        let listener = TcpListener::bind((bind, 0)).map_err(cannot)?;
        let addr = listener.local_addr().map_err(cannot)?;
        let first = Endpoint::Inherited { fd: listener.as_raw_fd(), addr };
        self.endpoints = Some((first, Endpoint::Connect { host: addr.ip().to_string(), port: addr.port() }));
        self.listener = Some(listener);
        Ok(())
    }

    /// Runs the generation to its end: all workers are gone when this returns.
    pub(super) fn drive(&mut self, mut state: State, signals: &mut Signals) -> Result<Outcome> {
        let mut events = VecDeque::from([Event::Start]);
        loop {
            while let Some(event) = events.pop_front() {
                let (next, actions) = state.step(event);
                state = next;
                for action in actions {
                    match action {
                        Action::Spawn(rank) => events.push_back(self.spawn(rank)),
                        Action::Terminate(rank) => self.on_worker(rank, Process::terminate),
                        Action::Kill(rank) => self.on_worker(rank, Process::kill),
                        Action::SetTimer(timer, after) => self.set_timer(timer, after),
                        Action::Finish(verdict) => return self.conclude(&state, verdict),
                    }
                }
            }
            self.wait(signals, &mut events)?;
        }
    }

    fn spawn(&mut self, rank: usize) -> Event {
        match self.start_worker(rank) {
            Ok(process) => {
                tracing::debug!(rank, pid = process.id(), "worker started");
                self.pids[rank] = Some(process.id());
                self.workers[rank] = Some(process);
                Event::WorkerStarted(rank)
            }
            Err(e) => Event::WorkerSpawnFailed { rank, error: e.message },
        }
    }

    fn start_worker(&mut self, rank: usize) -> Result<Process> {
        let handoff = self.handoff(rank);
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

    fn handoff(&self, rank: usize) -> Handoff {
        let n = self.launch.nproc;
        let place =
            Place { rank, local_rank: rank, world_size: n, local_world_size: n, node_rank: 0, nnodes: 1 };
        let endpoint = match &self.endpoints {
            None => Endpoint::Solo,
            Some((first, _)) if rank == 0 => first.clone(),
            Some((_, others)) => others.clone(),
        };
        let mut handoff = Handoff::new(place, endpoint, self.secret.clone(), self.launch.job.clone());
        handoff.threads = self.threads;
        handoff.run_id = self.launch.run_id.clone();
        handoff.log_dir = self.launch.log_dir.clone();
        handoff
    }

    fn on_worker(&self, rank: usize, deed: fn(&Process)) {
        if let Some(process) = &self.workers[rank] {
            deed(process);
        }
    }

    fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.timers.retain(|_, t| *t != timer);
        let mut at = Instant::now() + after;
        // Two timers may fall on one instant.
        while self.timers.contains_key(&at) {
            at += Duration::from_nanos(1);
        }
        self.timers.insert(at, timer);
    }

    /// Blocks until something happens, and puts it into `events`: stop requests first, because they explain exits, and
    /// exits before timers, because they may make them void.
    fn wait(&mut self, signals: &mut Signals, events: &mut VecDeque<Event>) -> Result<()> {
        self.poll(signals)?;
        for signal in signals.0.pending() {
            match signal {
                SIGCHLD => {}
                SIGTSTP => self.pause(),
                stop => {
                    let name = signal_hook::low_level::signal_name(stop).unwrap_or("a stop signal");
                    if self.stopped_by.replace(stop).is_none() {
                        tracing::warn!("{name}: the workers save and stop; once more ends them at once");
                    }
                    events.push_back(Event::StopRequested);
                }
            }
        }
        for (rank, slot) in self.workers.iter_mut().enumerate() {
            let Some(process) = slot else { continue };
            process.send();
            let ended = process.try_reap();
            if let Some(status) =
                ended.map_err(|e| Error::internal(format!("cannot wait for rank {rank}: {e}")))?
            {
                tracing::debug!(rank, ?status, "worker ended");
                *slot = None;
                failure::sweep(&self.launch.log_dir, rank);
                events.push_back(Event::WorkerExited { rank, status });
            }
        }
        let later = self.timers.split_off(&Instant::now());
        events.extend(std::mem::replace(&mut self.timers, later).into_values().map(Event::TimerFired));
        Ok(())
    }

    fn poll(&self, signals: &Signals) -> Result<()> {
        let mut fds = vec![PollFd::new(signals.0.get_read(), PollFlags::IN)];
        let unsent = self.workers.iter().flatten().filter_map(Process::to_send);
        fds.extend(unsent.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::OUT)));
        let timeout = self.timers.keys().next().map(|at| {
            // One nanosecond past it, for `split_off` keeps what falls on the instant itself.
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_nanos(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() }
        });
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(e) => Err(Error::internal(format!("cannot wait for the workers: {e}"))),
        }
    }

    /// Ctrl-Z: the workers are in other process groups, so the terminal stops only us. Returns when we are continued.
    fn pause(&self) {
        self.workers.iter().flatten().for_each(Process::pause);
        let _ = signal_hook::low_level::emulate_default_handler(SIGTSTP);
        self.workers.iter().flatten().for_each(Process::resume);
    }

    fn conclude(&mut self, state: &State, verdict: Verdict) -> Result<Outcome> {
        self.workers.iter_mut().filter_map(Option::take).for_each(Process::abandon);
        let Some(culprit) = verdict.culprit else {
            let ends = state.ends().into_iter().map(|end| end.cloned()).collect();
            return Ok(Outcome { code: verdict.code, stopped_by: self.stopped_by, ends });
        };
        let ranks: Vec<report::Rank<'_>> = state
            .ends()
            .into_iter()
            .zip(&self.pids)
            .map(|(end, pid)| report::Rank { end, class: end.map(|e| state.class(e)), pid: *pid })
            .collect();
        Err(report::worker_failed(&ranks, culprit, verdict.code, &self.launch.log_dir))
    }
}
