//! What a generation of workers is told from above: its part of the run, and when it is to end.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// This node's part of a generation of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub generation: u64,
    pub attempt: u32,
    pub run_id: String,
    /// This node's number in this generation, and how many there are.
    pub node: usize,
    pub nnodes: usize,
    /// Of this node's workers.
    pub first_rank: usize,
    pub world_size: usize,
    /// Why there is another generation.
    pub reason: Option<String>,
}

/// Who decides over a generation besides its workers: it hears of stop signals, and may recall the workers.
pub trait Controller {
    /// Readable when there may be a recall; none once the controller is gone.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// Until when nothing needs to be readable: there is a recall by then.
    fn patience(&self) -> Option<Instant> {
        None
    }

    /// A stop signal reached this supervisor; `at_once` with the second one.
    fn stop_requested(&mut self, _at_once: bool) {}

    /// The recalls since the last call, without waiting. One that is gone recalls at once, a single time.
    fn recalls(&mut self) -> Vec<Recall>;
}

/// The generation is to end here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// At a step boundary, with a checkpoint.
    pub save: bool,
}
