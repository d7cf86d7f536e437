//! The interface between a generation of workers and its controller: the node's part of the run, and recalls.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// This node's part of a generation of workers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeGeneration {
    pub generation: u64,
    pub attempt: u32,
    pub run_id: String,
    /// This node's number in this generation, and the number of nodes.
    pub node: usize,
    pub nnodes: usize,
    /// The rank of this node's first worker.
    pub(crate) first_rank: usize,
    pub world_size: usize,
    /// Why the previous generation ended.
    pub reason: Option<String>,
}

/// Controls a generation from outside: it receives stop requests and may recall the workers.
pub trait Controller {
    /// Descriptors that become readable when there may be a recall; none once the controller is gone.
    fn fds(&self) -> Vec<BorrowedFd<'_>>;

    /// The time at which there is a recall even if no descriptor is readable.
    fn patience(&self) -> Option<Instant> {
        None
    }

    /// A stop signal reached this supervisor; `at_once` is true from the second one on.
    fn stop_requested(&mut self, _at_once: bool) {}

    /// The recalls since the last call; does not block. A controller that is gone recalls at once, and only once.
    fn recalls(&mut self) -> Vec<Recall>;
}

/// A request to end this node's part of the generation. A stronger one may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recall {
    /// At a step boundary, with a checkpoint.
    Save,
    /// It has failed elsewhere; nothing more is saved.
    TakeDown,
    /// By a second stop signal.
    Kill,
}
