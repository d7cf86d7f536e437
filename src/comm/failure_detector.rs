//! What a group offers an engine that moves its data outside the group and uses it for control: detection of failures
//! while no call runs, and of late ranks.

use super::CommError;
use std::time::Duration;

pub trait FailureDetector: Send + Sync {
    /// Reads messages from the peers without blocking. A peer that is gone or has aborted ends the group; the error is
    /// that of every later call. Call it many times a second, because it also answers the peers' questions.
    fn poll(&self) -> Result<(), CommError>;
    /// Sets the number of the engine's calls that this rank has made so far, for peers that ask.
    fn set_calls_made(&self, calls: u64);
    /// The engine's call `number` (`call`, as text) did not complete within `time_limit`: asks every peer for its progress, and
    /// ends the group on all ranks with the verdict.
    fn report_overdue(&self, call: &str, number: u64, time_limit: Duration) -> CommError;
}
