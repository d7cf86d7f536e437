//! The probe that a call sends at its deadline, in engines whose ranks answer from within their calls: every peer is
//! asked for a sign of life before one is blamed.

use super::Place;
use super::header::Header;
use std::time::{Duration, Instant};

/// Bounds on the time that peers have to answer.
const SHORTEST: Duration = Duration::from_millis(50);
pub(super) const LONGEST: Duration = Duration::from_millis(500);
/// The same where answers are counted: a rank that has not answered by then hangs.
const COUNTED: Duration = Duration::from_secs(60);
/// Maximum number of ranks that a report lists one by one.
pub(super) const TOLD: usize = 8;

/// How long peers have to answer after a call that could take `patience`. Tests count answers: `enough` of them end the
/// wait, however long they take.
pub(super) fn grace(patience: Duration, enough: Option<usize>) -> Duration {
    enough.map_or((patience / 2).clamp(SHORTEST, LONGEST), |_| COUNTED)
}

pub(super) struct Probe {
    asked: Instant,
    until: Instant,
    enough: Option<usize>,
    answers: Vec<Option<(Header, Place)>>,
}

impl Probe {
    /// For `world` ranks, probed at `now`.
    pub(super) fn new(world: usize, now: Instant, patience: Duration, enough: Option<usize>) -> Self {
        Self { asked: now, until: now + grace(patience, enough), enough, answers: vec![None; world] }
    }

    /// When the verdict is due: at the end of the time for answers, or as soon as there are enough.
    pub(super) fn until(&self) -> Instant {
        let heard = self.answers.iter().flatten().count();
        if self.enough.is_some_and(|enough| heard >= enough) { self.asked } else { self.until }
    }

    pub(super) fn heard(&mut self, peer: usize, call: Header, place: Place) {
        if let Some(answer) = self.answers.get_mut(peer) {
            *answer = Some((call, place));
        }
    }

    /// The call that `peer` is in, and its step and phase.
    pub(super) fn answer(&self, peer: usize) -> Option<&(Header, Place)> {
        self.answers.get(peer)?.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::super::header::tests::sample;
    use super::*;

    #[test]
    fn peers_have_half_the_patience_within_limits() {
        for (patience, has) in [(0, 50), (300, 150), (600_000, 500)] {
            assert_eq!(grace(Duration::from_millis(patience), None), Duration::from_millis(has));
        }
        assert_eq!(grace(Duration::ZERO, Some(1)), COUNTED, "no clock ends it");
    }

    #[test]
    fn the_verdict_waits_for_the_clock_or_for_enough_answers() {
        let (now, patience) = (Instant::now(), Duration::from_millis(300));
        let mut timed = Probe::new(3, now, patience, None);
        let mut counted = Probe::new(3, now, patience, Some(2));
        for probe in [&mut timed, &mut counted] {
            probe.heard(1, sample(), Place::default());
            // A second answer, and one of a rank that does not exist: neither counts.
            probe.heard(1, sample(), Place::default());
            probe.heard(3, sample(), Place::default());
            assert_eq!(probe.until() - now, grace(patience, probe.enough));
            assert!(probe.answer(1).is_some() && probe.answer(2).is_none() && probe.answer(3).is_none());
            probe.heard(2, sample(), Place::default());
        }
        assert_eq!((timed.until() - now, counted.until()), (Duration::from_millis(150), now));
    }
}
