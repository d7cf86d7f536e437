//! The coordinator, a thread of node 0's supervisor: holds the connections to the supervisors of all nodes (including
//! this one) and carries out the decisions of [`policy`](super::policy).

use super::Nodes;
use super::events::{Action, Event, Generation, Member, Timer};
use super::message::{Closed, Hello, Link, NodeReport, Order, Start, no_link};
use super::policy::PolicyState;
use crate::{NodeGeneration, Timers};
use base::display::{self, count};
use base::error::{Error, Result};
use collectives::rendezvous::{Secret, SupervisorEvent, SupervisorListener};
use spec::Values;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time for a new connection to identify itself.
const HELLO: Duration = Duration::from_secs(5);
/// Time for the nodes to read that the run is over.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest single wait while no timer is set.
const LONG: Duration = Duration::from_secs(3600);

/// Maximum number of keys in a message.
const NAMED: usize = 5;

/// The node of this process.
const OWN: Member = 0;

pub(super) struct Coordinator {
    state: Option<PolicyState>,
    attempts: u32,
    /// Workers resume from checkpoints that the supervisor knows of.
    resumes: bool,
    /// Why a node that may be a missing one was refused, or may not find this one.
    rejection: Option<String>,
    run_id: String,
    listener: SupervisorListener,
    peers: BTreeMap<Member, Peer>,
    next: Member,
    timers: Timers<Timer>,
    /// Number of nodes and ranks of the last generation.
    size: Option<(usize, usize)>,
    /// The reason for a restart that was printed already.
    announced: Option<String>,
    /// Interval and next time of the heartbeats to waiting supervisors.
    heartbeat_interval: Duration,
    next_heartbeat: Instant,
    finished: bool,
}

struct Peer {
    link: Link,
    since: Instant,
    hello: Option<Hello>,
    /// The port that rank 0 would listen on.
    port: Option<u16>,
    /// Its workers are running.
    busy: bool,
}

impl Coordinator {
    /// Starts the coordinator's thread, which runs until the run is over. `own` is the link to the supervisor of this
    /// process; `listener` accepts the other nodes.
    pub(super) fn start(
        nodes: &Nodes,
        run_id: String,
        own: Link,
        listener: Option<TcpListener>,
        secret: Secret,
        doubt: Option<String>,
    ) -> Result<JoinHandle<()>> {
        let listener = SupervisorListener::new(listener, secret)?;
        let (state, actions) = PolicyState::new(nodes.limits);
        let mut coordinator = Self {
            state: Some(state),
            attempts: nodes.limits.max_restarts.saturating_add(1),
            resumes: nodes.newest_checkpoint.is_some(),
            rejection: doubt,
            run_id,
            listener,
            peers: BTreeMap::new(),
            next: OWN,
            timers: Timers::default(),
            size: None,
            announced: None,
            // Several heartbeats may be late.
            heartbeat_interval: nodes.silence / 6,
            next_heartbeat: Instant::now(),
            finished: false,
        };
        coordinator.admit(own);
        actions.into_iter().for_each(|action| coordinator.carry_out(action));
        std::thread::Builder::new()
            .name("coordinator".into())
            .spawn(move || coordinator.run())
            .map_err(|e| Error::internal(format!("cannot start the coordinator's thread: {e}")))
    }

    fn run(mut self) {
        while !self.finished {
            self.send_heartbeats();
            let watch: Vec<Member> = self.peers.keys().copied().collect();
            let streams: Vec<_> = self.peers.values().map(|p| p.link.stream()).collect();
            let mut until = self.next_heartbeat.min(Instant::now() + LONG);
            until = self.timers.next().map_or(until, |at| until.min(at));
            let unidentified = self.peers.values().filter(|p| p.hello.is_none());
            until = unidentified.map(|p| p.since + HELLO).fold(until, Instant::min);
            let mut events = VecDeque::new();
            match self.listener.next(&streams, until) {
                Ok(SupervisorEvent::Readable(index)) => self.read_reports(watch[index], &mut events),
                Ok(SupervisorEvent::Connected(stream, from)) => match Link::new(stream).map_err(no_link) {
                    Ok(link) => self.admit(link),
                    Err(e) => tracing::warn!("cannot accept the supervisor at {from}: {}", e.message),
                },
                Ok(SupervisorEvent::Deadline) => self.drop_unidentified(),
                // No further nodes can connect.
                Err(e) => {
                    tracing::error!("{}", e.message);
                    return;
                }
            }
            let fired: Vec<Timer> = self.timers.fired().collect();
            if fired.contains(&Timer::Join) {
                let of_strangers = self.listener.rejection().map(str::to_owned);
                events.extend(of_strangers.or_else(|| self.rejection.clone()).map(Event::Rejected));
            }
            events.extend(fired.into_iter().map(Event::TimerFired));
            while let Some(event) = events.pop_front() {
                let Some(state) = self.state.take() else { return };
                let (state, actions) = state.step(event);
                self.state = Some(state);
                actions.into_iter().for_each(|action| self.carry_out(action));
            }
        }
        self.peers.into_values().for_each(|peer| peer.link.close(CLOSE_TIMEOUT));
    }

    fn send_heartbeats(&mut self) {
        let now = Instant::now();
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + self.heartbeat_interval;
        let waiting = self.peers.iter().filter(|(_, peer)| peer.hello.is_some() && !peer.busy);
        waiting.for_each(|(member, _)| self.send_order(*member, &Order::Wait));
    }

    fn admit(&mut self, link: Link) {
        let peer = Peer { link, since: Instant::now(), hello: None, port: None, busy: false };
        self.peers.insert(self.next, peer);
        self.next += 1;
    }

    fn drop_unidentified(&mut self) {
        self.peers.retain(|_, p| p.hello.is_some() || p.since.elapsed() < HELLO);
    }

    fn read_reports(&mut self, member: Member, events: &mut VecDeque<Event>) {
        let Some(peer) = self.peers.get_mut(&member) else { return };
        match peer.link.receive::<NodeReport>() {
            Ok(reports) => reports.into_iter().for_each(|r| self.handle_report(member, r, events)),
            Err(Closed) => self.drop_peer(member, events),
        }
    }

    fn drop_peer(&mut self, member: Member, events: &mut VecDeque<Event>) {
        self.peers.remove(&member);
        events.push_back(Event::Lost(member));
        // Without its own supervisor this process is about to exit.
        self.finished |= member == OWN;
    }

    fn handle_report(&mut self, member: Member, report: NodeReport, events: &mut VecDeque<Event>) {
        let own = self.peers.get(&OWN).and_then(|p| p.hello.as_ref());
        match report {
            NodeReport::Hello(hello) => match own.map_or(Ok(()), |own| check_same_job(own, &hello)) {
                Ok(()) => {
                    let seat = if member == OWN { Some(0) } else { hello.node_rank };
                    let (host, nproc, generation) = (hello.host.clone(), hello.nproc, hello.generation);
                    events.push_back(Event::Joined { member, seat, host, nproc, generation });
                    if let Some(peer) = self.peers.get_mut(&member) {
                        (peer.port, peer.hello) = (hello.port, Some(hello));
                    }
                }
                Err(why) => self.refuse(member, why, false),
            },
            NodeReport::Ended { end, checkpoint, port } => {
                if let Some(peer) = self.peers.get_mut(&member) {
                    (peer.port, peer.busy) = (port, false);
                }
                // If another node's folder is not the same folder, its checkpoints belong to another run.
                let checkpoint = checkpoint.filter(|_| member == OWN);
                events.push_back(Event::Ended { member, end, checkpoint });
            }
            NodeReport::StopRequested { at_once } => {
                events.push_back(Event::StopRequested { member, at_once })
            }
        }
    }

    fn refuse(&mut self, member: Member, why: String, later: bool) {
        if !later {
            tracing::warn!("refused a node: {why}");
            self.rejection = Some(format!("a node was refused: {why}"));
        }
        self.send_order(member, &Order::Refused { why, later });
        self.peers.remove(&member);
    }

    fn send_order(&self, member: Member, order: &Order) {
        if let Some(peer) = self.peers.get(&member) {
            // A broken connection is detected by the next read.
            let _ = peer.link.send(order);
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Start(generation) => self.begin(&generation),
            Action::Recall { member, how } => self.send_order(member, &Order::Recall { how }),
            Action::Refuse { member, why, later } => self.refuse(member, why, later),
            Action::CutOff(member) => drop(self.peers.remove(&member)),
            Action::Dismiss(member) => {
                self.send_order(member, &Order::Dismissed);
                self.peers.remove(&member);
            }
            Action::Announce { reason, missing, pause } => {
                status!("{reason}\n{}", waiting_notice(&missing, pause));
                self.announced = Some(reason);
            }
            Action::SetTimer(timer, after) => self.timers.set(timer, after),
            Action::Finish { code, failure } => {
                self.finished = true;
                let order = Order::Finish { code, failure };
                self.peers.keys().for_each(|member| self.send_order(*member, &order));
            }
        }
    }

    fn begin(&mut self, generation: &Generation) {
        let world_size = generation.nodes.iter().map(|(_, nproc)| nproc).sum();
        let nnodes = generation.nodes.len();
        self.announce(generation, (nnodes, world_size));
        let port = generation.nodes.first().and_then(|(first, _)| self.peers.get(first)?.port);
        let mut first_rank = 0;
        for (node, (member, nproc)) in generation.nodes.iter().enumerate() {
            let part = NodeGeneration {
                generation: generation.number,
                attempt: generation.attempt,
                run_id: self.run_id.clone(),
                node,
                nnodes,
                first_rank,
                world_size,
                reason: generation.reason.clone(),
            };
            self.send_order(*member, &Order::Start(Start { part, port }));
            if let Some(peer) = self.peers.get_mut(member) {
                peer.busy = true;
            }
            first_rank += nproc;
        }
    }

    /// Prints why there is another generation and where it resumes.
    fn announce(&mut self, generation: &Generation, size: (usize, usize)) {
        let resized = self.size.replace(size) != Some(size);
        let Some(reason) = &generation.reason else { return };
        let line = restart_notice(generation, self.attempts, self.resumes, resized.then_some(size));
        match self.announced.take() {
            Some(already) if already == *reason => status!("{line}"),
            _ => status!("{reason}\n{line}"),
        }
    }
}

/// Why the next generation does not start yet.
fn waiting_notice(missing: &[usize], pause: Duration) -> String {
    let nodes: Vec<String> = missing.iter().map(ToString::to_string).collect();
    match nodes.is_empty() {
        true => format!("the workers restart in {} s", pause.as_secs()),
        false => format!("waiting for node {}", nodes.join(" or ")),
    }
}

/// Which attempt starts, where it resumes, and the number of nodes and ranks if that has changed.
fn restart_notice(
    generation: &Generation,
    attempts: u32,
    resumes: bool,
    size: Option<(usize, usize)>,
) -> String {
    let Generation { number, attempt, checkpoint, .. } = generation;
    let resumes = match checkpoint {
        Some(step) => format!(", resumes at step {step}"),
        None if resumes => ", starts from the beginning: no checkpoint is saved yet".to_owned(),
        None => String::new(),
    };
    let size = size.map_or_else(String::new, |(nodes, ranks)| {
        format!(", now {} and {}", count(nodes, "node"), count(ranks, "rank"))
    });
    format!("attempt {attempt}/{attempts}, generation {number}{resumes}{size}")
}

/// Whether a node has the same job as node 0.
fn check_same_job(own: &Hello, other: &Hello) -> std::result::Result<(), String> {
    let (host, first) = (&other.host, &own.host);
    if own.version != other.version {
        return Err(format!(
            "{host} runs ddp-run {}, but node 0 ({first}) runs {}",
            other.version, own.version
        ));
    }
    // Before the plan: with another `--rdzv-id` it is another job.
    if own.terms != other.terms {
        return Err(format!(
            "{host} was started with {}, but node 0 ({first}) with {}",
            other.terms, own.terms
        ));
    }
    if own.plan_hash != other.plan_hash {
        return Err(format!(
            "{host} was started with another plan ({}) than node 0 ({first}; {}){}; start every node with the same \
             spec and overrides",
            short(&other.plan_hash),
            short(&own.plan_hash),
            differing_keys(&own.keys, &other.keys)
        ));
    }
    Ok(())
}

/// `: optimizer.lr is 0.2 there and 0.1 on node 0`; empty if no key differs.
fn differing_keys(own: &Values, other: &Values) -> String {
    let all: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    let value =
        |of: &Values, key: &str| of.get(key).map_or_else(|| "not given".to_owned(), |v| display::name(v));
    let mut named: Vec<String> = all
        .into_iter()
        .filter(|key| own.get(*key) != other.get(*key))
        .map(|key| {
            format!("{} is {} there and {} on node 0", display::name(key), value(other, key), value(own, key))
        })
        .collect();
    let more = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    if named.is_empty() { String::new() } else { format!(": {}", named.join(", ")) }
}

fn short(hash: &str) -> &str {
    &hash[..hash.floor_char_boundary(12)]
}

#[cfg(test)]
#[path = "message_tests.rs"]
mod tests;
