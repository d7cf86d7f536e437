//! What follows the end of a generation: another generation, or the end of the run.

use super::super::events::{Action, Failure, NodeEnd, Weight};
use super::{Phase, State};
use crate::error::ExitCode;
use std::time::Duration;

impl State {
    pub(super) fn conclude_if_all_ended(&mut self, actions: &mut Vec<Action>) {
        let Phase::Running(running) = &self.phase else { return };
        if !running.left.is_empty() {
            return;
        }
        let failures =
            || running.ends.iter().filter_map(|e| if let NodeEnd::Failed(f) = e { Some(f) } else { None });
        let heaviest = failures().map(|f| f.weight).max();
        // Ranks leave together once everything is saved: if those of one node were done, silence elsewhere changes
        // nothing. A rank that lost one of them was still in the middle of the run.
        let silent = |f: &Failure| matches!(f.weight, Weight::Unresponsive | Weight::LostNode);
        let complete = running.ends.contains(&NodeEnd::Done) && failures().all(silent);
        // When ranks stop before training or are ended at once, the remaining ranks lose their peers.
        let stopped = running.saving && running.ends.contains(&NodeEnd::Stopped);
        let excused = complete
            || stopped && heaviest < Some(Weight::LostNode)
            || self.at_once && heaviest < Some(Weight::Root);
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
        // All expected nodes have arrived.
        self.gather(Duration::ZERO, true, actions);
    }
}

/// The failure of a generation that decides how it ends.
fn blamed<'a>(failures: impl Iterator<Item = &'a Failure> + Clone) -> Option<Failure> {
    let heaviest = failures.clone().map(|f| f.weight).max()?;
    let mut worst = failures.clone().filter(|f| f.weight == heaviest);
    if heaviest != Weight::Unresponsive {
        // The first of the heaviest failures, but those without a restart come first.
        return worst.clone().find(|f| !f.retry).or_else(|| worst.next()).cloned();
    }
    // A rank that was busy for too long is killed like one that was stopped; the echoes name the right one.
    let echoes = failures.filter(|f| f.weight == Weight::Echo);
    let pairs = worst.clone().flat_map(|f| echoes.clone().map(move |echo| (f, echo)));
    let named = pairs.clone().find(|(f, echo)| f.rank == echo.rank);
    let Some((rank, echo)) = named.or_else(|| pairs.clone().next()) else { return worst.next().cloned() };
    let (head, rest) = rank.message.split_at(rank.message.find('\n').unwrap_or(rank.message.len()));
    let witness = echo.message.lines().next().unwrap_or_default();
    Some(Failure { code: echo.code, message: format!("{head}; {witness}{rest}"), ..rank.clone() })
}
