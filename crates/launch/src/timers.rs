//! The timers of a state machine's loop: at most one of each kind.

use std::time::{Duration, Instant};

/// Upper limit of a wait, so that the clock does not overflow.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

pub struct Timers<T>(Vec<(Instant, T)>);

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: PartialEq> Timers<T> {
    /// Sets a timer; one that is running is restarted.
    pub fn set(&mut self, timer: T, after: Duration) {
        self.0.retain(|(_, t)| *t != timer);
        self.0.push((Instant::now() + after.min(LONGEST), timer));
    }

    /// When the next timer fires.
    pub fn next(&self) -> Option<Instant> {
        self.0.iter().map(|(at, _)| *at).min()
    }

    /// Removes the timers that are due, earliest first.
    pub(crate) fn fired(&mut self) -> impl Iterator<Item = T> + use<T> {
        let now = Instant::now();
        let mut due: Vec<_> = self.0.extract_if(.., |(at, _)| *at <= now).collect();
        due.sort_by_key(|(at, _)| *at);
        due.into_iter().map(|(_, timer)| timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_can_be_restarted() {
        let mut timers = Timers::default();
        timers.set('b', Duration::from_nanos(2));
        timers.set('a', Duration::MAX);
        timers.set('a', Duration::ZERO);
        timers.set('c', Duration::MAX);
        let until = timers.next().expect("three are set") + Duration::from_millis(1);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        let mut fired: Vec<char> = timers.fired().collect();
        fired.sort_unstable();
        assert_eq!(fired, ['a', 'b']);
        assert_eq!(timers.fired().count(), 0);
        assert!(timers.next().is_some_and(|at| at > Instant::now()), "`c` is far");
    }
}
