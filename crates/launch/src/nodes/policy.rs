//! When generations of workers start and end, for all nodes of a run, as a pure state machine.
//!
//! The machine runs on node 0; another one watches the processes of each node ([`crate::state`]).
//! [`PolicyState::step`] maps a state and an [`Event`] to the next state and the [`Action`]s to carry out; it does no I/O
//! and reads no clock.
//!
//! The policy: a generation starts when the required nodes are present, and ends when each of them has reported. The
//! first failure recalls the other nodes at once; a rank that hangs there is then reported by its own node. The kind
//! of failure decides what follows: after a lost peer, a signal or a lost node there is another attempt, after a
//! pause that doubles; not after a wrong spec, missing data, a loss that is not finite, or a bug. A run that is done
//! on one node is done on all. `max_restarts` limits attempts without progress: a checkpoint newer than at the last
//! failure resets the count. With `MIN:MAX` nodes, when a node joins or is asked to leave, the workers save at a step
//! boundary and restart with the new number of nodes; neither that nor a node lost within the range counts as a
//! restart.

mod conclusion;
mod membership;

use super::events::{Action, Event, Generation, Limits, Member, NodeEnd, NodeFailure, Recall, Timer};
use crate::ExitCode;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeSlot {
    member: Member,
    host: String,
    nproc: usize,
    leaving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Running {
    /// The nodes that have not reported.
    left: Vec<Member>,
    /// The reports of the others, in order of arrival.
    ends: Vec<NodeEnd>,
    /// The last recall of the nodes.
    recalled: Option<Recall>,
    /// A save was requested before the end.
    saving: bool,
    /// Its nodes have to report before a timer fires. One that fires otherwise is that of an earlier generation.
    timed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Between generations.
    Gathering {
        /// The pause before a restart is not over.
        paused: bool,
        /// The time for further nodes to arrive is over.
        settled: bool,
    },
    Running(Running),
    Finished,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyState {
    limits: Limits,
    seats: BTreeMap<usize, NodeSlot>,
    phase: Phase,
    /// The last generation that was started, by this machine or a previous one.
    generation: u64,
    /// Restarts since the last progress.
    used: u32,
    checkpoint: Option<u64>,
    stopping: bool,
    /// A second signal requested an immediate end.
    at_once: bool,
    /// Why the next generation is needed.
    reason: Option<String>,
    /// The failure that the next generation restarts after.
    failure: Option<NodeFailure>,
    /// Why a node that may be a missing one is not connected.
    rejection: Option<String>,
}

impl PolicyState {
    /// A run without any node, not even this one.
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
            rejection: None,
        };
        (state, vec![Action::SetTimer(Timer::Join, limits.join)])
    }

    /// Impossible events change nothing.
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
                Event::Rejected(why) => self.rejection = Some(why),
            }
        }
        (self, actions)
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
            self.recall(Recall::TakeDown, actions);
        } else if self.limits.together
            && !running.left.is_empty()
            && running.recalled < Some(Recall::TakeDown)
        {
            // The others must end now, too.
            running.timed = true;
            actions.push(Action::SetTimer(Timer::Report, self.limits.report));
        }
        self.conclude_if_all_ended(actions);
    }

    /// Ends the generation on the nodes that still run it, unless an earlier recall does.
    fn recall(&mut self, how: Recall, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &mut self.phase else { return };
        if running.recalled >= Some(how) {
            return;
        }
        running.recalled = Some(how);
        running.saving |= how == Recall::Save;
        actions.extend(running.left.iter().map(|member| Action::Recall { member: *member, how }));
        if !running.left.is_empty() {
            running.timed = true;
            let workers = match how {
                Recall::Save => self.limits.grace,
                Recall::TakeDown => self.limits.shutdown,
                Recall::Kill => Duration::ZERO,
            };
            actions.push(Action::SetTimer(Timer::Report, workers + self.limits.report));
        }
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
            (Timer::Report, Phase::Running(running)) if running.recalled >= Some(Recall::TakeDown) => {
                for member in running.left.clone() {
                    actions.push(Action::CutOff(member));
                    self.lost(member, actions);
                }
                return;
            }
            (Timer::Report, Phase::Running(running)) if running.timed => {
                return self.recall(Recall::TakeDown, actions);
            }
            _ => return,
        }
        self.start_if_ready(actions);
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
        self.phase =
            Phase::Running(Running { left, ends: Vec::new(), recalled: None, saving: false, timed: false });
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

    fn finish(&mut self, code: ExitCode, failure: Option<NodeFailure>, actions: &mut Vec<Action>) {
        self.phase = Phase::Finished;
        actions.push(Action::Finish { code, failure });
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
