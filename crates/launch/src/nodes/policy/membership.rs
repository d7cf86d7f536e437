//! Nodes that join, are lost, leave, or stop.

use super::super::events::{Action, Attribution, Member, NodeEnd, NodeFailure, Recall, Timer};
use super::{NodeSlot, Phase, PolicyState};
use crate::nodes::NodeRange;
use crate::{ExitCode, FailureCause};

impl PolicyState {
    fn seat_of(&self, member: Member) -> Option<usize> {
        self.seats.iter().find(|(_, s)| s.member == member).map(|(seat, _)| *seat)
    }

    pub(super) fn joined(
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
            // It was restarted on its host before its former connection was seen to end, or it was started twice.
            let later = former.host == host;
            let (other, seat) = (&former.host, wanted.unwrap_or_default());
            let why = match later {
                true => format!("node rank {seat} of {host} is still connected"),
                false => format!(
                    "{host} and {other} both claim node rank {seat}; each node needs a different --node-rank"
                ),
            };
            return actions.push(Action::Refuse { member, why, later });
        }
        // Node 0 belongs to this machine's own node.
        let seat = wanted.or_else(|| (1..max).find(|seat| !self.seats.contains_key(seat)));
        let Some(seat) = seat.filter(|seat| *seat < max) else {
            let why = match wanted {
                Some(seat) => {
                    format!("node rank {seat} is out of range: the run has {max} nodes (0 to {})", max - 1)
                }
                None => format!("all {max} nodes of the run are connected already"),
            };
            return actions.push(Action::Refuse { member, why, later: false });
        };
        self.seats.insert(seat, NodeSlot { member, host: host.clone(), nproc, leaving: false });
        match self.phase {
            Phase::Running(_) if self.limits.nodes.is_elastic() => {
                self.reason.get_or_insert(format!("node {seat} ({host}) joined"));
                self.recall(Recall::Save, actions);
            }
            Phase::Gathering { settled: false, .. } if self.is_enough() => {
                actions.push(Action::SetTimer(Timer::Settle, self.limits.settle));
            }
            _ => {}
        }
        self.start_if_ready(actions);
    }

    pub(super) fn lost(&mut self, member: Member, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(member) else { return };
        let Some(gone) = self.seats.remove(&seat) else { return };
        let Phase::Running(running) = &mut self.phase else {
            // The time for the other nodes to arrive may be over, except at the start, when nobody has been waited for twice.
            if self.generation > 0 {
                actions.push(Action::SetTimer(Timer::Join, self.limits.rejoin));
            }
            return;
        };
        // If it had reported, only the next generation needs it.
        if !running.left.contains(&member) {
            return;
        }
        running.left.retain(|m| *m != member);
        let what = format!("node {seat} ({}) was lost: the connection to its supervisor broke", gone.host);
        let failure = NodeFailure::new(FailureCause::Other, Attribution::LostNode, what);
        running.ends.push(NodeEnd::Failed(failure));
        self.recall(Recall::TakeDown, actions);
        self.conclude_if_all_ended(actions);
    }

    pub(super) fn stop(&mut self, member: Member, at_once: bool, actions: &mut Vec<Action>) {
        let Some(seat) = self.seat_of(member) else { return };
        if at_once && self.stopping {
            self.at_once = true;
            return self.recall(Recall::Kill, actions);
        }
        let staying = self.seats.iter().filter(|(s, other)| **s != seat && !other.leaving).count();
        let leaves = self.limits.nodes.is_elastic() && seat != 0 && staying >= self.limits.nodes.min;
        if let Some(own) = self.seats.get_mut(&seat).filter(|_| leaves && !self.stopping) {
            own.leaving = true;
            let host = own.host.clone();
            self.reason.get_or_insert(format!("node {seat} ({host}) received a stop request"));
        } else {
            self.stopping = true;
        }
        match self.phase {
            Phase::Running(_) => self.recall(Recall::Save, actions),
            Phase::Gathering { .. } if self.stopping => self.finish(ExitCode::Stopped, None, actions),
            Phase::Gathering { .. } => {
                self.dismiss(actions);
                self.start_if_ready(actions);
            }
            Phase::Finished => {}
        }
    }

    pub(super) fn dismiss(&mut self, actions: &mut Vec<Action>) {
        let leaving = self.seats.extract_if(.., |_, seat| seat.leaving);
        actions.extend(leaving.map(|(_, seat)| Action::Dismiss(seat.member)));
    }

    pub(super) fn is_enough(&self) -> bool {
        self.seats.len() >= self.limits.nodes.min && self.seats.contains_key(&0)
    }

    pub(super) fn missing(&self) -> Vec<usize> {
        (0..self.limits.nodes.max).filter(|seat| !self.seats.contains_key(seat)).collect()
    }

    pub(super) fn too_few(&mut self, actions: &mut Vec<Action>) {
        let NodeRange { min, max } = self.limits.nodes;
        let came = self.seats.len();
        let mut message = format!("only {came} of {min} nodes connected in time");
        if min == max {
            let missing: Vec<String> = self.missing().iter().map(ToString::to_string).collect();
            message.push_str(&format!("; missing: node {}", missing.join(", ")));
        }
        if let Some(why) = &self.rejection {
            message.push_str(&format!("; {why}"));
        }
        let mut code = ExitCode::Rendezvous;
        if let Some(before) = &self.failure {
            message = format!("{}\n\nno restart: {message}", before.message);
            code = before.code;
        }
        let hint = Some(
            "start ddp-run on every node with the same --nnodes, --rdzv-endpoint, spec and secret (DDP_RUN_SECRET_FILE)"
                .into(),
        );
        let failure = NodeFailure::new(FailureCause::Rendezvous, Attribution::Root, message);
        let failure = NodeFailure { code, retry: false, hint, ..failure };
        self.finish(code, Some(failure), actions);
    }
}
