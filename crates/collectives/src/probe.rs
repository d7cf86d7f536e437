//! What is asked of every peer at a deadline, before one is blamed; and the verdict on a call in engines whose ranks answer
//! from within their calls.

use super::header::Header;
use super::rendezvous::name_ranks;
use super::{StepPhase, messages};
use std::time::{Duration, Instant};

/// Peers have a tenth of the time limit to answer, between these two: on a machine that has more to do than it can, a rank that is
/// only slow is not blamed because it slept for half a second.
const MIN_GRACE: Duration = Duration::from_millis(500);
const MAX_GRACE: Duration = Duration::from_secs(5);
/// After a short time limit they have half of it, but no less than this.
const SHORTEST_GRACE: Duration = Duration::from_millis(50);
/// The same where answers are counted: a rank that has not answered by then hangs.
const COUNTED: Duration = Duration::from_secs(60);
/// Maximum number of ranks that a report lists one by one.
pub(super) const MAX_REPORTED: usize = 8;

/// How long peers have to answer after a call that could take `time_limit`.
pub(super) fn grace(time_limit: Duration) -> Duration {
    (time_limit / 10).clamp(MIN_GRACE, MAX_GRACE).min(time_limit / 2).max(SHORTEST_GRACE)
}

/// The answers so far; by default, the call that a peer is in, and its place.
pub(super) struct Probe<A = (Header, StepPhase)> {
    sent: Instant,
    until: Instant,
    enough: Option<usize>,
    answers: Vec<Option<A>>,
}

impl<A: Clone> Probe<A> {
    /// For `world` ranks, probed at `now`. Tests count answers: `enough` of them end the wait, however long they take.
    pub(super) fn new(world: usize, now: Instant, time_limit: Duration, enough: Option<usize>) -> Self {
        let until = now + enough.map_or_else(|| grace(time_limit), |_| COUNTED);
        Self { sent: now, until, enough, answers: vec![None; world] }
    }

    /// When the verdict is due: at the end of the time for answers, or as soon as there are enough.
    pub(super) fn until(&self) -> Instant {
        let received = self.answers.iter().flatten().count();
        if self.enough.is_some_and(|enough| received >= enough) { self.sent } else { self.until }
    }

    pub(super) fn record(&mut self, peer: usize, answer: A) {
        if let Some(place) = self.answers.get_mut(peer) {
            *place = Some(answer);
        }
    }

    pub(super) fn answer(&self, peer: usize) -> Option<&A> {
        self.answers.get(peer)?.as_ref()
    }
}

impl Probe {
    /// Which rank is late, and the message: one that has not answered, else one that is in another call; of these,
    /// one that rank `me` is waiting for in its `call` comes first. `last_seen` describes ranks that have not answered.
    pub(super) fn verdict(
        &self,
        (me, call): (usize, &Header),
        time_limit: Duration,
        awaited: &[usize],
        departed: impl Fn(usize) -> bool,
        last_seen: impl Fn(usize) -> Option<String>,
    ) -> (Option<usize>, String) {
        let peers = || (0..self.answers.len()).filter(|p| *p != me);
        let silent: Vec<usize> = peers().filter(|p| self.answer(*p).is_none() && !departed(*p)).collect();
        let describe = |p: usize| match self.answer(p) {
            Some((call, place)) => Some(format!("rank {p} is in {call}, {place}")),
            None => last_seen(p),
        };
        let lines =
            silent.iter().copied().chain(peers().filter(|p| !silent.contains(p))).filter_map(describe);
        let report: String = lines.take(MAX_REPORTED).map(|line| format!("; {line}")).collect();
        if let Some(culprit) = silent.iter().find(|p| awaited.contains(p)).or(silent.first()) {
            return (Some(*culprit), messages::no_response(&silent, time_limit, me) + &report);
        }
        let elsewhere = |p: &usize| self.answer(*p).is_some_and(|(other, _)| other != call);
        let culprit = awaited.iter().copied().chain(peers()).find(elsewhere).or(awaited.first().copied());
        let awaited = match (awaited, culprit) {
            ([], None) => "the other ranks".to_owned(),
            ([], Some(culprit)) => name_ranks(&[culprit]),
            _ => name_ranks(awaited),
        };
        (culprit, messages::no_progress(me, &awaited, call, time_limit) + &report)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;

    #[test]
    fn peers_have_a_tenth_of_the_time_limit_within_bounds() {
        let cases = [(0, 50), (300, 150), (5000, 500), (12_000, 1200), (600_000, 5000)];
        for (time_limit, has) in cases {
            assert_eq!(grace(Duration::from_millis(time_limit)), Duration::from_millis(has));
        }
    }

    #[test]
    fn the_verdict_waits_for_the_clock_or_for_enough_answers() {
        let (now, time_limit) = (Instant::now(), Duration::from_millis(300));
        let mut timed = Probe::new(3, now, time_limit, None);
        let mut counted = Probe::new(3, now, time_limit, Some(2));
        for probe in [&mut timed, &mut counted] {
            probe.record(1, (sample(), StepPhase::default()));
            // A second answer, and one of a rank that does not exist: neither counts.
            probe.record(1, (sample(), StepPhase::default()));
            probe.record(3, (sample(), StepPhase::default()));
            let waits = if probe.enough.is_some() { COUNTED } else { grace(time_limit) };
            assert_eq!(probe.until() - now, waits);
            assert!(probe.answer(1).is_some() && probe.answer(2).is_none() && probe.answer(3).is_none());
            probe.record(2, (sample(), StepPhase::default()));
        }
        assert_eq!((timed.until() - now, counted.until()), (Duration::from_millis(150), now));
    }
}
