//! How a thread waits for MPI, which moves nothing unless it is called. A short wait is spun; a longer one leaves the
//! processor to whoever wants it, such as the same rank's training thread; a long one sleeps between two looks.

use std::time::{Duration, Instant};

/// Ranks that call at the same moment meet within this.
const SPIN: Duration = Duration::from_micros(20);
/// The same in the midst of a transfer, where the others are at work and bytes move only when this thread calls: who gives
/// way too soon loses a time slice for each chunk.
const TRANSFER: Duration = Duration::from_micros(500);
/// After this a thread sleeps between two looks: each a sixteenth of what it has waited already, so that no wait grows by
/// much more than that.
const YIELD: Duration = Duration::from_micros(500);
const SHARE: u32 = 16;
const LONGEST: Duration = Duration::from_millis(5);

pub(super) struct Pause {
    start: Instant,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Whether this wait is one that sleeps.
    pub(super) fn is_long(&self) -> bool {
        self.start.elapsed() >= YIELD
    }

    /// Between two looks.
    pub(super) fn rest(&self) {
        let waited = self.start.elapsed();
        if waited < SPIN {
            std::hint::spin_loop();
        } else if waited < YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / SHARE).min(LONGEST));
        }
    }

    /// Between two looks in the midst of a transfer.
    pub(super) fn breathe(&self) {
        match self.start.elapsed() {
            waited if waited < TRANSFER => std::hint::spin_loop(),
            waited if waited < Duration::from_millis(50) => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}
