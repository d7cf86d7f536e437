//! What follows the end of a generation: another generation, or the end of the run.

use super::super::events::{Action, Attribution, NodeEnd, NodeFailure};
use super::{Phase, PolicyState};
use crate::ExitCode;
use std::time::Duration;

impl PolicyState {
    pub(super) fn conclude_if_all_ended(&mut self, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &self.phase else { return };
        if !running.left.is_empty() {
            return;
        }
        let failures =
            || running.ends.iter().filter_map(|e| if let NodeEnd::Failed(f) = e { Some(f) } else { None });
        let closest = failures().map(|f| f.attribution).max();
        // Ranks leave together once everything is saved: if those of one node were done, silence elsewhere changes
        // nothing. A rank that lost one of them was still in the middle of the run.
        let silent =
            |f: &NodeFailure| matches!(f.attribution, Attribution::Unresponsive | Attribution::LostNode);
        let complete = match self.limits.together {
            true => running.ends.contains(&NodeEnd::Done) && failures().all(silent),
            false => running.ends.iter().all(|end| *end == NodeEnd::Done),
        };
        // When ranks stop before training or are ended at once, the remaining ranks lose their peers.
        let stopped = running.saving && running.ends.contains(&NodeEnd::Stopped);
        let excused = complete
            || stopped && closest < Some(Attribution::LostNode)
            || self.at_once && closest < Some(Attribution::Root);
        match blamed(failures()).filter(|_| !excused) {
            Some(failure) => self.after_failure(failure, actions),
            None if complete => self.finish(ExitCode::Done, None, actions),
            None => self.after_stop(actions),
        }
    }

    fn after_failure(&mut self, failure: NodeFailure, actions: &mut Vec<Action>) {
        let staying = self.seats.values().filter(|s| !s.leaving).count();
        let within_range = self.limits.nodes.is_elastic()
            && failure.attribution == Attribution::LostNode
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
        // All expected nodes have arrived.
        self.gather(Duration::ZERO, true, actions);
    }
}

/// The failure of a generation that decides how it ends.
fn blamed<'a>(failures: impl Iterator<Item = &'a NodeFailure> + Clone) -> Option<NodeFailure> {
    let closest = failures.clone().map(|f| f.attribution).max()?;
    let mut worst = failures.clone().filter(|f| f.attribution == closest);
    if closest != Attribution::Unresponsive {
        // The first of the closest failures, but those without a restart come first.
        return worst.clone().find(|f| !f.retry).or_else(|| worst.next()).cloned();
    }
    // A rank that was busy for too long is killed like one that was stopped; the consequences name the right one.
    let consequences = failures.filter(|f| f.attribution == Attribution::Consequence);
    let pairs = worst.clone().flat_map(|f| consequences.clone().map(move |consequence| (f, consequence)));
    let named = pairs.clone().find(|(f, consequence)| f.rank == consequence.rank);
    let Some((rank, consequence)) = named.or_else(|| pairs.clone().next()) else {
        return worst.next().cloned();
    };
    let (head, rest) = rank.message.split_at(rank.message.find('\n').unwrap_or(rank.message.len()));
    let witness = consequence.message.lines().next().unwrap_or_default();
    Some(NodeFailure { code: consequence.code, message: format!("{head}; {witness}{rest}"), ..rank.clone() })
}
