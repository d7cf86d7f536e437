//! When generations of workers start and end, over all nodes of a run, as a pure state machine.
//!
//! One machine runs on node 0, beside the one that watches that node's processes ([`super::super::state`]). [`State::step`]
//! maps a state and an [`Event`] to the next state and the [`Action`]s to carry out; it does no I/O and reads no clock.
//!
//! The policy: a generation starts when the nodes that it needs are there and ends when each of them has reported. The
//! first failure recalls the other nodes at once; a rank that hangs there is then named by its own node. What the failure
//! was decides what follows: a lost peer, a signal or a lost node is worth another attempt, after a pause that doubles; a
//! wrong spec, missing data, a loss that is not finite or a bug is not. A run that has come to its end on one node has done so on all.
//! `max_restarts` limits attempts without progress:
//! a checkpoint newer than the last failure's refills it. With `MIN:MAX` nodes, one that joins or is asked to leave makes
//! the workers save at a step boundary and start again in the new number; neither that nor a node lost within the range
//! counts as a restart.

use super::events::{Action, Event, Failure, Generation, Limits, Member, NodeEnd, Timer, Weight};
use crate::error::ExitCode;
use crate::launch::NodeRange;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Seat {
    member: Member,
    host: String,
    nproc: usize,
    leaving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    /// The nodes that have not reported.
    left: Vec<Member>,
    /// What the others reported, in the order of its coming.
    ends: Vec<NodeEnd>,
    /// `Some(save)` once the nodes were recalled.
    recalled: Option<bool>,
    /// They were asked to save first.
    saving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Between generations.
    Gathering {
        /// The pause before a restart is not over.
        paused: bool,
        /// As many nodes as were to come have had their time.
        settled: bool,
    },
    Running(Running),
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    limits: Limits,
    seats: BTreeMap<usize, Seat>,
    phase: Phase,
    /// The last one that was started, here or before this machine was.
    generation: u64,
    /// Restarts since the last progress.
    used: u32,
    checkpoint: Option<u64>,
    stopping: bool,
    /// A second signal asked for the end of it all.
    at_once: bool,
    /// Why the next generation is needed.
    reason: Option<String>,
    /// The failure that the next generation is to make good.
    failure: Option<Failure>,
}

impl State {
    /// No node is there yet; not even this one.
    pub fn new(limits: Limits) -> (Self, Vec<Action>) {
        let state = Self {
            limits,
            seats: BTreeMap::new(),
            phase: Phase::Gathering { paused: false, settled: false },
            generation: 0,
            used: 0,
            checkpoint: None,
            stopping: false,
            at_once: false,
            reason: None,
            failure: None,
        };
        (state, vec![Action::SetTimer(Timer::Join, limits.join)])
    }

    /// Events that can't be change nothing.
    pub fn step(mut self, event: Event) -> (Self, Vec<Action>) {
        let mut actions = Vec::new();
        if self.phase != Phase::Finished {
            match event {
                Event::Joined { member, seat, host, nproc, generation } => {
                    self.generation = self.generation.max(generation);
                    self.joined(member, seat, host, nproc, &mut actions);
                }
                Event::Lost(member) => self.lost(member, &mut actions),
                Event::Ended { member, end, checkpoint } => {
                    self.ended(member, end, checkpoint, &mut actions);
                }
                Event::StopRequested { member, at_once } => self.stop(member, at_once, &mut actions),
                Event::TimerFired(timer) => self.timer(timer, &mut actions),
            }
        }
        (self, actions)
    }

    fn seat_of(&self, member: Member) -> Option<usize> {
        self.seats.iter().find(|(_, s)| s.member == member).map(|(seat, _)| *seat)
    }

    fn joined(
        &mut self,
        member: Member,
        wanted: Option<usize>,
        host: String,
        nproc: usize,
        actions: &mut Vec<Action>,
    ) {
        let NodeRange { max, .. } = self.limits.nodes;
        if self.seat_of(member).is_some() {
            return;
        }
        if let Some(former) = wanted.and_then(|seat| self.seats.get(&seat)) {
            // Started again on its host, before the end of the former one was noticed; or twice.
            let later = former.host == host;
            let (other, seat) = (&former.host, wanted.unwrap_or_default());
            let why = match later {
                true => format!("node rank {seat} of {host} is still there"),
                false => format!(
                    "{host} and {other} both claim node rank {seat}; each node needs a --node-rank of its own"
                ),
            };
            return actions.push(Action::Refuse { member, why, later });
        }
        // Seat 0 is this machine's own node's.
        let seat = wanted.or_else(|| (1..max).find(|seat| !self.seats.contains_key(seat)));
        let Some(seat) = seat.filter(|seat| *seat < max) else {
            let why = match wanted {
                Some(seat) => format!("node rank {seat} is not among {max} nodes (0 to {})", max - 1),
                None => format!("the run has all its {max} nodes"),
            };
            return actions.push(Action::Refuse { member, why, later: false });
        };
        self.seats.insert(seat, Seat { member, host: host.clone(), nproc, leaving: false });
        match self.phase {
            Phase::Running(_) if self.limits.nodes.is_elastic() => {
                self.reason.get_or_insert(format!("node {seat} ({host}) joined"));
                self.recall(true, actions);
            }
            Phase::Gathering { settled: false, .. } if self.is_enough() => {
                actions.push(Action::SetTimer(Timer::Settle, self.limits.settle));
            }
            _ => {}
        }
        self.start_if_ready(actions);
    }

    fn is_enough(&self) -> bool {
        self.seats.len() >= self.limits.nodes.min && self.seats.contains_key(&0)
    }

    fn lost(&mut self, member: Member, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(member) else { return };
        let Some(gone) = self.seats.remove(&seat) else { return };
        let Phase::Running(running) = &mut self.phase else {
            // The time for the others to come may be over.
            return actions.push(Action::SetTimer(Timer::Join, self.limits.rejoin));
        };
        // One that had reported is missed only by the next generation.
        if !running.left.contains(&member) {
            return;
        }
        running.left.retain(|m| *m != member);
        running.ends.push(NodeEnd::Failed(Failure {
            code: ExitCode::WorkerFailed,
            weight: Weight::LostNode,
            retry: true,
            rank: None,
            message: format!("node {seat} ({}) was lost: the connection to its supervisor broke", gone.host),
            hint: None,
        }));
        self.recall(false, actions);
        self.conclude_if_all_ended(actions);
    }

    fn ended(&mut self, member: Member, end: NodeEnd, checkpoint: Option<u64>, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &mut self.phase else { return };
        if !running.left.contains(&member) {
            return;
        }
        let failed = matches!(end, NodeEnd::Failed(_));
        running.left.retain(|m| *m != member);
        running.ends.push(end);
        if checkpoint > self.checkpoint {
            self.checkpoint = checkpoint;
            self.used = 0;
        }
        if failed {
            self.recall(false, actions);
        } else if !running.left.is_empty() {
            // Ranks end together.
            actions.push(Action::SetTimer(Timer::Report, self.limits.report));
        }
        self.conclude_if_all_ended(actions);
    }

    /// Ends the generation on the nodes that still run it. A recall without a save may follow one with it.
    fn recall(&mut self, save: bool, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &mut self.phase else { return };
        let before = running.recalled;
        if before == Some(false) || before == Some(save) {
            return;
        }
        running.recalled = Some(save);
        running.saving |= save;
        actions.extend(running.left.iter().map(|member| Action::Recall { member: *member, save }));
        if !running.left.is_empty() {
            let grace = if save { self.limits.grace } else { Duration::ZERO };
            actions.push(Action::SetTimer(Timer::Report, grace + self.limits.report));
        }
    }

    fn stop(&mut self, member: Member, at_once: bool, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(member) else { return };
        if at_once && self.stopping {
            self.at_once = true;
            return self.recall(false, actions);
        }
        let staying = self.seats.iter().filter(|(s, other)| **s != seat && !other.leaving).count();
        let leaves = self.limits.nodes.is_elastic() && seat != 0 && staying >= self.limits.nodes.min;
        if let Some(own) = self.seats.get_mut(&seat).filter(|_| leaves && !self.stopping) {
            own.leaving = true;
            let host = own.host.clone();
            self.reason.get_or_insert(format!("node {seat} ({host}) was asked to leave"));
        } else {
            self.stopping = true;
        }
        match self.phase {
            Phase::Running(_) => self.recall(true, actions),
            Phase::Gathering { .. } if self.stopping => self.finish(ExitCode::Stopped, None, actions),
            Phase::Gathering { .. } => {
                self.dismiss(actions);
                self.start_if_ready(actions);
            }
            Phase::Finished => {}
        }
    }

    fn dismiss(&mut self, actions: &mut Vec<Action>) {
        let leaving = self.seats.extract_if(.., |_, seat| seat.leaving);
        actions.extend(leaving.map(|(_, seat)| Action::Dismiss(seat.member)));
    }

    fn timer(&mut self, timer: Timer, actions: &mut Vec<Action>) {
        match (timer, &mut self.phase) {
            (Timer::Settle, Phase::Gathering { settled, .. }) => *settled = true,
            (Timer::Pause, Phase::Gathering { paused, .. }) => *paused = false,
            (Timer::Join, Phase::Gathering { settled, .. }) => {
                *settled = true;
                if !self.is_enough() {
                    return self.too_few(actions);
                }
            }
            (Timer::Report, Phase::Running(running)) if running.recalled == Some(false) => {
                for member in running.left.clone() {
                    actions.push(Action::CutOff(member));
                    self.lost(member, actions);
                }
                return;
            }
            (Timer::Report, Phase::Running(_)) => return self.recall(false, actions),
            _ => return,
        }
        self.start_if_ready(actions);
    }

    fn missing(&self) -> Vec<usize> {
        (0..self.limits.nodes.max).filter(|seat| !self.seats.contains_key(seat)).collect()
    }

    fn too_few(&mut self, actions: &mut Vec<Action>) {
        let NodeRange { min, max } = self.limits.nodes;
        let came = self.seats.len();
        let mut message = format!("{came} of {min} nodes came together in time");
        if min == max {
            let missing: Vec<String> = self.missing().iter().map(ToString::to_string).collect();
            message.push_str(&format!("; missing: node {}", missing.join(", ")));
        }
        if let Some(before) = &self.failure {
            message = format!("{}\n\nfor another attempt {message}", before.message);
        }
        let failure = Failure {
            code: self.failure.as_ref().map_or(ExitCode::Rendezvous, |f| f.code),
            weight: Weight::Root,
            retry: false,
            rank: None,
            message,
            hint: Some("start ddp-run on every node with the same --nnodes and --rdzv-endpoint".into()),
        };
        self.finish(failure.code, Some(failure), actions);
    }

    fn start_if_ready(&mut self, actions: &mut Vec<Action>) {
        let Phase::Gathering { paused: false, settled } = self.phase else { return };
        if !self.is_enough() || !(settled || self.seats.len() == self.limits.nodes.max) {
            return;
        }
        self.generation += 1;
        let nodes = || self.seats.values().map(|s| (s.member, s.nproc));
        actions.push(Action::Start(Generation {
            number: self.generation,
            attempt: self.used + 1,
            nodes: nodes().collect(),
            reason: self.reason.take(),
            checkpoint: self.checkpoint,
        }));
        self.failure = None;
        let left = nodes().map(|(member, _)| member).collect();
        self.phase = Phase::Running(Running { left, ends: Vec::new(), recalled: None, saving: false });
    }

    fn conclude_if_all_ended(&mut self, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &self.phase else { return };
        if !running.left.is_empty() {
            return;
        }
        let failures =
            || running.ends.iter().filter_map(|e| if let NodeEnd::Failed(f) = e { Some(f) } else { None });
        let heaviest = failures().map(|f| f.weight).max();
        // Ranks leave together, once everything is saved: where one node's have, nobody's silence takes it back.
        let complete = running.ends.contains(&NodeEnd::Done);
        // Who is left behind by ranks that stopped before training, or that were ended at once, loses its peers.
        let stopped = running.saving && running.ends.contains(&NodeEnd::Stopped);
        let excused = stopped && heaviest < Some(Weight::LostNode)
            || (self.at_once || complete) && heaviest < Some(Weight::Root);
        match blamed(failures()).filter(|_| !excused) {
            Some(failure) => self.after_failure(failure, actions),
            None if complete => self.finish(ExitCode::Done, None, actions),
            None => self.after_stop(actions),
        }
    }

    fn after_failure(&mut self, failure: Failure, actions: &mut Vec<Action>) {
        let staying = self.seats.values().filter(|s| !s.leaving).count();
        let within_range = self.limits.nodes.is_elastic()
            && failure.weight == Weight::LostNode
            && staying >= self.limits.nodes.min;
        let spent = !within_range && self.used >= self.limits.max_restarts;
        if self.stopping || !failure.retry || spent {
            return self.finish(failure.code, Some(failure), actions);
        }
        let mut pause = Duration::ZERO;
        if !within_range {
            self.used += 1;
            pause = self.limits.pause_before(self.used);
        }
        self.dismiss(actions);
        self.reason = Some(failure.message.lines().next().unwrap_or_default().to_owned());
        self.failure = Some(failure);
        self.gather(pause, false, actions);
    }

    fn after_stop(&mut self, actions: &mut Vec<Action>) {
        let leaving = self.seats.values().any(|s| s.leaving);
        if self.stopping || !(leaving || self.reason.is_some()) {
            return self.finish(ExitCode::Stopped, None, actions);
        }
        self.dismiss(actions);
        // Who was to come has come.
        self.gather(Duration::ZERO, true, actions);
    }

    fn gather(&mut self, pause: Duration, settled: bool, actions: &mut Vec<Action>) {
        self.phase = Phase::Gathering { paused: !pause.is_zero(), settled };
        if !pause.is_zero() {
            actions.push(Action::SetTimer(Timer::Pause, pause));
        }
        actions.push(Action::SetTimer(Timer::Join, self.limits.rejoin.max(pause)));
        let settles = !settled && self.is_enough() && self.seats.len() < self.limits.nodes.max;
        if settles {
            actions.push(Action::SetTimer(Timer::Settle, self.limits.settle));
        }
        self.start_if_ready(actions);
        if let (Phase::Gathering { .. }, Some(reason)) = (&self.phase, self.reason.clone()) {
            let (missing, pause) = match self.is_enough() {
                true if settles => (Vec::new(), pause.max(self.limits.settle)),
                true => (Vec::new(), pause),
                false => (self.missing(), pause),
            };
            actions.push(Action::Announce { reason, missing, pause });
        }
    }

    fn finish(&mut self, code: ExitCode, failure: Option<Failure>, actions: &mut Vec<Action>) {
        self.phase = Phase::Finished;
        actions.push(Action::Finish { code, failure });
    }
}

/// The failure of a generation that its end follows from.
fn blamed<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> Option<Failure> {
    let heaviest = failures.clone().map(|f| f.weight).max()?;
    let mut worst = failures.clone().filter(|f| f.weight == heaviest);
    if heaviest != Weight::Unresponsive {
        // Of the same weight the first; one that is not worth another attempt before others of its weight.
        return worst.clone().find(|f| !f.retry).or_else(|| worst.next()).cloned();
    }
    // A rank that was busy for long had to be killed as well as the one that was stopped: the others' words tell.
    let echoes = failures.filter(|f| f.weight == Weight::Echo);
    let pairs = worst.clone().flat_map(|f| echoes.clone().map(move |echo| (f, echo)));
    let named = pairs.clone().find(|(f, echo)| f.rank == echo.rank);
    let Some((rank, echo)) = named.or_else(|| pairs.clone().next()) else { return worst.next().cloned() };
    let (head, rest) = rank.message.split_at(rank.message.find('\n').unwrap_or(rank.message.len()));
    let witness = echo.message.lines().next().unwrap_or_default();
    Some(Failure { code: echo.code, message: format!("{head}; {witness}{rest}"), ..rank.clone() })
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
