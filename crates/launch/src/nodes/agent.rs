//! One node's supervisor: connects to the coordinator, and starts this node's workers for each generation on its orders.

mod generation;

use super::coordinator::Coordinator;
use super::events::NodeFailure;
use super::message::{Closed, Hello, Link, NodeReport, Order, no_link};
use super::setup::{self, Setup, advertised_address};
use super::{Limits, Nodes};
use crate::ExitCode;
use crate::{LocalLaunch, Signals, WorkerInput};
use base::display;
use base::error::{Error, ErrorKind, Result};
use collectives::rendezvous::Target;
use record::RunId;
use std::collections::VecDeque;
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Delay before a node that was refused for the moment tries again.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// How long a coordinator on another node may take to answer a stop request once the workers of all nodes have ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs this node's workers (`launch`) until the end of the run.
pub(super) fn run(nodes: Nodes, launch: LocalLaunch) -> Result<ExitCode> {
    let mut signals = Signals::new(&launch.stop)?;
    let Some(mut setup) = Setup::start(&nodes)?.wait(&mut signals)? else { return Ok(ExitCode::Stopped) };
    if setup.target.is_none() && nodes.limits.nodes.max > 1 {
        // The ranks of other nodes must be able to reach rank 0: node 0's own name may resolve to loopback here.
        setup.host = Some(advertised_address(&nodes, setup.ip)?.to_string());
    }
    let for_supervisors = setup.listener.take();
    let mut agent = Agent {
        setup,
        coordinator: None,
        listener: None,
        orders: VecDeque::new(),
        generation: 0,
        signalled_at: None,
        stopped_at: None,
        at_once: false,
        done: false,
        last_message_at: Instant::now(),
        timed_out: false,
        nodes,
        launch,
    };
    let mut link = match agent.setup.target {
        None => agent.coordinate(for_supervisors)?,
        Some(_) => match agent.connect(&mut signals, agent.nodes.limits.join)? {
            Some(link) => link,
            None => return Ok(ExitCode::Stopped),
        },
    };
    let done = agent.serve(&mut signals, &mut link);
    // The other nodes receive the end of the run before this process exits.
    drop(link);
    if let Some(coordinator) = agent.coordinator.take() {
        let _ = coordinator.join();
    }
    done
}

struct Agent {
    nodes: Nodes,
    launch: LocalLaunch,
    setup: Setup,
    coordinator: Option<JoinHandle<()>>,
    /// Rank 0's listener for the next generation, on node 0.
    listener: Option<TcpListener>,
    orders: VecDeque<Order>,
    generation: u64,
    /// When the first signal came that requested a stop.
    signalled_at: Option<Instant>,
    /// When a stop was requested while no workers were running.
    stopped_at: Option<Instant>,
    /// An immediate end was requested from the other nodes while this node had no workers.
    at_once: bool,
    /// The last generation was done on this node, and so on all nodes: ranks leave together once everything is saved.
    done: bool,
    /// When node 0's last message came.
    last_message_at: Instant,
    /// Node 0's last message is too old.
    timed_out: bool,
}

impl Agent {
    fn coordinate(&mut self, listener: Option<TcpListener>) -> Result<Link> {
        let (own, theirs) = Link::pair().map_err(no_link)?;
        // It is there before the coordinator reads anything: the others are compared with this node.
        let link = self.hello(own)?;
        let coordinator = Coordinator::start(
            &self.nodes,
            RunId::draw()?,
            theirs,
            listener,
            self.setup.key.clone(),
            self.setup.doubt.take(),
        )?;
        self.coordinator = Some(coordinator);
        Ok(link)
    }

    fn hello(&mut self, link: Link) -> Result<Link> {
        let Limits { nodes, max_restarts, .. } = self.nodes.limits;
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node_rank: self.nodes.node_rank,
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            nproc: self.launch.nproc,
            plan_hash: self.nodes.plan_hash.clone(),
            keys: self.nodes.keys.clone(),
            terms: match &self.nodes.rdzv_id {
                Some(id) => {
                    format!(
                        "--nnodes {nodes}, --max-restarts {max_restarts} and --rdzv-id {}",
                        display::name(id)
                    )
                }
                None => format!("--nnodes {nodes} and --max-restarts {max_restarts}"),
            },
            generation: self.generation,
            port: self.listen()?,
        };
        // If the connection is broken, the next read reports it.
        let _ = link.send(&NodeReport::Hello(hello));
        (self.last_message_at, self.timed_out) = (Instant::now(), false);
        Ok(link)
    }

    /// A new socket, or only its port, for rank 0 of the next generation; workers of the last generation do not know its port.
    fn listen(&mut self) -> Result<Option<u16>> {
        let inherits = self.launch.input == WorkerInput::Handoff;
        let several = self.launch.nproc > 1 || self.nodes.limits.nodes.max > 1;
        if self.setup.target.is_some() || inherits && !several {
            return Ok(None);
        }
        let ip = self.setup.ip;
        let cannot = |e| {
            Error::new(ErrorKind::Rendezvous, format!("cannot listen on {ip}: {e}"))
                .hint("it must be an address of this machine")
        };
        let listener = if inherits { TcpListener::bind((ip, 0)) } else { setup::reserve_port() };
        let listener = listener.map_err(cannot)?;
        let port = listener.local_addr().map_err(cannot)?.port();
        self.listener = Some(listener);
        Ok(Some(port))
    }

    /// Connects to node 0, retrying until it answers; `None` after a stop signal.
    fn connect(&mut self, signals: &mut Signals, patience: Duration) -> Result<Option<Link>> {
        let Some(target) = self.setup.target.clone() else {
            return Err(Error::internal("node 0 has no supervisor to connect to"));
        };
        let calling = setup::connect(target, self.name(), self.setup.key.clone(), Instant::now() + patience)?;
        let Some(stream) = calling.wait(signals)? else { return Ok(None) };
        if let (Some(Target::File(_)), Ok(node0)) = (&self.setup.target, stream.peer_addr()) {
            self.setup.host = Some(node0.ip().to_string());
        }
        self.hello(Link::new(stream).map_err(no_link)?).map(Some)
    }

    fn name(&self) -> String {
        match self.nodes.node_rank {
            Some(rank) => format!("node {rank}"),
            None => "this node".to_owned(),
        }
    }

    /// Executes orders until the run is over.
    fn serve(&mut self, signals: &mut Signals, link: &mut Link) -> Result<ExitCode> {
        // Since the first refusal in a row.
        let mut again_until = None;
        loop {
            let order = match self.next_order(signals, link) {
                Ok(Some(order)) => order,
                Ok(None) if self.done => return Ok(ExitCode::Done),
                Ok(None) => return Ok(ExitCode::Stopped),
                Err(Closed) if self.done && self.setup.target.is_some() => {
                    status!("node 0 was lost: {}; all workers had finished", self.loss_reason());
                    return Ok(ExitCode::Done);
                }
                Err(Closed) => match self.reconnect(signals)? {
                    Some(again) => {
                        *link = again;
                        continue;
                    }
                    None => return Ok(ExitCode::Stopped),
                },
            };
            match order {
                Order::Start(start) => {
                    again_until = None;
                    self.generation(start, signals, link)?;
                }
                // The workers have already ended.
                Order::Recall { .. } | Order::Wait => again_until = None,
                Order::Dismissed => return Ok(ExitCode::Stopped),
                Order::Refused { why, later: true }
                    if again_until.is_none_or(|until| Instant::now() < until) =>
                {
                    if again_until.is_none() {
                        again_until = Some(Instant::now() + self.nodes.limits.join);
                        status!("node 0 refused this node: {why}; retrying");
                    }
                    match self.reconnect_after(RETRY_DELAY, signals)? {
                        Some(other) => *link = other,
                        None => return Ok(ExitCode::Stopped),
                    }
                }
                Order::Refused { why, .. } => {
                    return Err(Error::new(
                        ErrorKind::Rendezvous,
                        format!("node 0 refused this node: {why}"),
                    ));
                }
                Order::Finish { code, failure: None } => return Ok(code),
                Order::Finish { code, failure: Some(NodeFailure { message, hint, .. }) } => {
                    return Err(Error { hint, ..Error::new(code.error_kind(), message) });
                }
            }
        }
    }

    /// The time until which node 0 may be silent. The coordinator in this process always answers once the other nodes
    /// have reported.
    fn patience(&self) -> Option<Instant> {
        self.setup.target.as_ref()?;
        let Nodes { limits: Limits { join, .. }, silence, .. } = self.nodes;
        // Before the first generation there is nothing to lose by waiting as long as node 0 would.
        Some(self.last_message_at + if self.generation == 0 { join + silence } else { silence })
    }

    fn loss_reason(&self) -> String {
        match self.timed_out {
            true => {
                format!("its supervisor did not respond for {} s", self.nodes.silence.as_secs())
            }
            false => "the connection to its supervisor broke".to_owned(),
        }
    }

    /// Waits while no workers are running; `None` if a stop signal is not answered, or on a third one.
    fn next_order(&mut self, signals: &mut Signals, link: &mut Link) -> Result<Option<Order>, Closed> {
        loop {
            if let Some(order) = self.orders.pop_front() {
                return Ok(Some(order));
            }
            let patience = self.patience();
            let answer = self
                .stopped_at
                .filter(|_| patience.is_some())
                .map(|at| at + self.launch.policy.grace + STOP_TIMEOUT);
            if let Ok(true) = signals.wait(Some(link.fd()), patience.into_iter().chain(answer).min()) {
                let again = self.signalled_at.is_some_and(|at| at.elapsed() > self.launch.policy.debounce);
                match (again, self.at_once) {
                    (true, true) => return Ok(None),
                    (true, false) => {
                        self.at_once = true;
                        link.send(&NodeReport::StopRequested { at_once: true })?;
                    }
                    (false, _) if self.stopped_at.is_none() => {
                        self.signalled_at = Some(Instant::now());
                        self.stopped_at = Some(Instant::now());
                        link.send(&NodeReport::StopRequested { at_once: false })?;
                    }
                    (false, _) => {}
                }
            }
            let came = link.receive::<Order>()?;
            if !came.is_empty() {
                self.last_message_at = Instant::now();
                self.orders.extend(came);
                continue;
            }
            // Messages that arrived while this process was stopped are read before the deadlines are checked.
            let over = |until: Option<Instant>| until.is_some_and(|until| Instant::now() >= until);
            if over(answer) {
                return Ok(None);
            }
            if over(patience) {
                self.timed_out = true;
                return Err(Closed);
            }
        }
    }

    /// Reconnects to node 0 after a pause; a stop signal ends the pause.
    fn reconnect_after(&mut self, pause: Duration, signals: &mut Signals) -> Result<Option<Link>> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if signals.wait(None, Some(until))? {
                return Ok(None);
            }
        }
        self.connect(signals, self.nodes.limits.join)
    }

    fn reconnect(&mut self, signals: &mut Signals) -> Result<Option<Link>> {
        if self.stopped_at.is_some() && self.setup.target.is_some() {
            return Ok(None);
        }
        let Limits { nodes, max_restarts, rejoin, .. } = self.nodes.limits;
        if self.setup.target.is_none() {
            return Err(Error::internal("the coordinator's thread has ended"));
        }
        if max_restarts == 0 && !nodes.is_elastic() {
            return Err(Error::new(
                ErrorKind::WorkerFailed,
                format!("node 0 was lost: {}", self.loss_reason()),
            )
            .hint("`--max-restarts` lets a run survive this; `--resume auto` continues it"));
        }
        let lost = format!("node 0 was lost: {}", self.loss_reason());
        status!("{lost}; waiting for it to return");
        match self.connect(signals, rejoin) {
            // The workers had been started: a loss, and not a run whose nodes never met.
            Err(e) if e.kind == ErrorKind::Rendezvous && self.generation > 0 => {
                let generation = self.generation;
                let what = format!("{lost} in generation {generation}, and it did not return: {}", e.message);
                Err(Error::new(ErrorKind::WorkerFailed, what)
                    .hint("the same command on every node resumes from the newest checkpoint"))
            }
            other => other,
        }
    }
}
