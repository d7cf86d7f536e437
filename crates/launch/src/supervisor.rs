//! One generation of this node's workers: each gets its [`Handoff`] and its log, and leaves a note when it fails.
//!
//! [`ProcessSet`] runs the processes.

use std::fs::File;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

use super::console::Copies;
use super::cores;
use super::error_file;
use super::failure::{self, Evidence, Failure};
use super::generation::{Controller, NodeGeneration};
use super::handoff::{Endpoint, Handoff, RankPosition};
use super::local::{LocalLaunch, WorkerInput};
use super::logs;
use super::process_set::{Finished, ProcessSet, Workers};
use super::report::{self, NodeEnd};
use super::signals::Signals;
use super::verdict::{Verdict, WorkerStatus};
use super::worker::Process;
use base::error::{Error, IoContext, Result};
use collectives::rendezvous::Secret;
use serde_json::Value;

/// The workers of one generation on this node, with everything needed to start and watch them.
pub struct LocalWorkers<'a> {
    launch: &'a LocalLaunch,
    part: NodeGeneration,
    secret: Secret,
    threads: usize,
    /// Rank 0's rendezvous socket, until rank 0 has it, or its reserved port, until rank 0 is started. Were a copy kept longer, other ranks could connect to a rank
    /// 0 that has died. `None` if rank 0 is on another node, or the only rank.
    listener: Option<TcpListener>,
    /// How other ranks reach rank 0.
    endpoint: Endpoint,
    copies: Copies,
    /// The log of each worker that has not been started.
    logs: Vec<Option<File>>,
}

/// How a generation ended on this node.
pub struct Ended {
    pub end: NodeEnd,
    /// When a signal requested a stop.
    pub(crate) signalled_at: Option<Instant>,
}

impl<'a> LocalWorkers<'a> {
    /// `endpoint` is rank 0's address; rank 0 inherits `listener`.
    pub fn new(
        launch: &'a LocalLaunch,
        part: NodeGeneration,
        listener: Option<TcpListener>,
        endpoint: Endpoint,
        secret: Secret,
    ) -> Result<Self> {
        let made = std::fs::create_dir_all(&launch.log_dir).doing("create the log folder", &launch.log_dir);
        let elsewhere = |e: Error| match launch.input {
            WorkerInput::Handoff => logs::elsewhere(e),
            WorkerInput::Environment(_) => e.hint("`--log-dir DIR` writes elsewhere"),
        };
        made.map_err(elsewhere)?;
        let threads = launch
            .threads_per_worker
            .unwrap_or_else(|| cores::threads_per_worker(cores::usable_cores(), launch.nproc));
        let mut workers = Self {
            launch,
            part,
            secret,
            threads,
            listener,
            endpoint,
            copies: Copies::default(),
            logs: Vec::new(),
        };
        // Checked here, so that a job that can't be encoded, or a log that can't be written, is reported as such, and not as a worker
        // that does not start.
        if launch.input == WorkerInput::Handoff {
            workers.handoff(0)?.to_line()?;
        }
        for local in 0..launch.nproc {
            let log = logs::open_with_header(&workers.handoff(local)?, launch.log_format);
            workers.logs.push(Some(log.map_err(elsewhere)?));
        }
        if workers.part.world_size == 1 && launch.input == WorkerInput::Handoff {
            workers.listener = None;
        }
        Ok(workers)
    }

    /// Runs the generation; all workers have ended when this returns.
    pub(crate) fn drive(&mut self, signals: &mut Signals, controller: &mut dyn Controller) -> Result<Ended> {
        let set = ProcessSet::new(self.launch.nproc, self.part.first_rank, self.launch.policy);
        let finished = set.run(self, signals, controller);
        // The report shows the end of a log.
        std::mem::take(&mut self.copies).finish();
        Ok(self.conclude(finished?))
    }

    fn handoff(&self, local: usize) -> Result<Handoff<Value>> {
        let rank = self.part.first_rank + local;
        let place = RankPosition {
            rank,
            local_rank: local,
            world_size: self.part.world_size,
            local_world_size: self.launch.nproc,
            node_rank: self.part.node,
            nnodes: self.part.nnodes,
        };
        let endpoint = match &self.listener {
            Some(listener) if rank == 0 && self.launch.input == WorkerInput::Handoff => {
                Endpoint::inherited(listener)?
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

    fn conclude(&self, finished: Finished) -> Ended {
        let Finished { verdict, state, pids, signalled_at } = finished;
        let end = match verdict {
            Verdict::Done => NodeEnd::Done,
            Verdict::Stopped => NodeEnd::Stopped,
            Verdict::Failed { culprit, cause } => {
                let ranks: Vec<report::Rank<'_>> = state
                    .ends()
                    .into_iter()
                    .zip(&pids)
                    .map(|(end, pid)| report::Rank { end, class: end.map(|e| state.class(e)), pid: *pid })
                    .collect();
                let place = report::NodeContext {
                    first_rank: self.part.first_rank,
                    world_size: self.part.world_size,
                    log_dir: &self.launch.log_dir,
                };
                NodeEnd::Failed(report::worker_failed(&ranks, culprit, cause, place))
            }
        };
        Ended { end, signalled_at }
    }
}

impl Workers for LocalWorkers<'_> {
    fn start(&mut self, local: usize) -> Result<Process> {
        let handoff = self.handoff(local)?;
        let rank = handoff.place.rank;
        let log = self.logs[local]
            .take()
            .ok_or_else(|| Error::internal(format!("rank {rank} is started twice")))?;
        failure::clear(&self.launch.log_dir, rank);
        let mut command = Command::new(&self.launch.program);
        command.args(&self.launch.args);
        command.envs(cores::thread_variables(self.threads, &|name| std::env::var(name).ok()));
        let output = self.launch.console.output(local, rank, log, &mut self.copies);
        let output = output.doing("copy the output of", &self.launch.program)?;
        // Moved to rank 0, and closed here once rank 0 has its copy.
        let listener = if rank == 0 { self.listener.take() } else { None };
        let started = match &self.launch.input {
            WorkerInput::Handoff => Process::start(command, Some(handoff.to_line()?), output, listener),
            WorkerInput::Environment(variables) => {
                command.envs(variables.values(&handoff)?);
                // Rank 0 binds the port itself.
                drop(listener);
                Process::start(command, None, output, None)
            }
        };
        started.doing("start", &self.launch.program)
    }

    fn ended(&mut self, local: usize, pid: u32, status: &WorkerStatus) -> Evidence {
        let rank = self.part.first_rank + local;
        if let WorkerInput::Environment(_) = self.launch.input {
            error_file::to_note(&self.launch.log_dir, rank, pid);
        }
        let note = Failure::read(&self.launch.log_dir, rank, pid);
        failure::sweep(&self.launch.log_dir, rank);
        match (&self.launch.input, status) {
            // A program that has lost a peer fails in its own way, maybe before the kernel reports the peer's end; but it is
            // never killed for that.
            (WorkerInput::Environment(_), WorkerStatus::Signaled { signal: libc::SIGKILL, .. })
                if note.is_none() =>
            {
                Evidence { at: Duration::ZERO, ..Evidence::new(None) }
            }
            _ => Evidence::new(note.as_ref()),
        }
    }
}
