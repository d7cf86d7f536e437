//! How a thread waits for MPI, which makes progress only when it is called. A short wait spins; a longer one yields the
//! processor, for example to the same rank's training thread; a long one sleeps between two tests.

use std::time::{Duration, Instant};

/// Ranks that call at the same moment meet within this time.
const SPIN: Duration = Duration::from_micros(20);
/// The same during a transfer, when the others are working and bytes move only when this thread calls MPI: a thread
/// that yields too soon loses a time slice per chunk.
const TRANSFER: Duration = Duration::from_micros(500);
/// After this a thread sleeps between two tests, each time for a sixteenth of the time it has waited already, so that
/// no wait gets longer by much more than that.
const YIELD: Duration = Duration::from_micros(500);
const SHARE: u32 = 16;
const LONGEST: Duration = Duration::from_millis(5);

pub(super) struct Backoff {
    start: Instant,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { start: Instant::now() }
    }

    /// Whether this wait is long enough to sleep.
    pub(super) fn is_long(&self) -> bool {
        self.start.elapsed() >= YIELD
    }

    /// Pauses between two tests.
    pub(super) fn wait(&self) {
        let waited = self.start.elapsed();
        if waited < SPIN {
            std::hint::spin_loop();
        } else if waited < YIELD {
            std::thread::yield_now();
        } else {
            std::thread::sleep((waited / SHARE).min(LONGEST));
        }
    }

    /// Pauses between two tests during a transfer.
    pub(super) fn wait_in_transfer(&self) {
        match self.start.elapsed() {
            waited if waited < TRANSFER => std::hint::spin_loop(),
            waited if waited < Duration::from_millis(50) => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
    }
}
