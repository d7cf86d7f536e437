//! What a group can do for an engine that moves its data past it, and has it for control: hear of failures while no call
//! runs, and find out who is late.

use super::CommError;
use std::time::Duration;

pub trait Watch: Send + Sync {
    /// Hears what the peers have to say, without waiting. A peer that is gone or has given up ends the group: the error
    /// is that of every later call. To be called many times a second, for peers ask, too.
    fn hear(&self) -> Result<(), CommError>;
    /// This rank has made `calls` of the engine's calls so far, for those who ask.
    fn made(&self, calls: u64);
    /// The engine's call `number` (`call`, in words) was not done within `patience`: asks every peer how far it is, and
    /// ends the group on all ranks with the verdict.
    fn overdue(&self, call: &str, number: u64, patience: Duration) -> CommError;
}
