//! A run over one or several nodes, and over as many generations of workers as it takes: where the nodes meet, what they prove to each
//! other, and when workers start and end.
//!
//! Each node has a supervisor (`agent`) with its own workers ([`crate::launch`]). The one of node 0 also hosts the `coordinator`, to which all
//! of them, itself included, are connected; what it decides is in `policy`, a state machine without
//! I/O (`events` go in, actions come out).

mod agent;
mod awaited;
mod config;
mod coordinator;
mod events;
mod key;
mod meet;
mod message;
mod policy;
mod rdzv;
mod reach;

pub use config::NodesConfig;
pub use key::KeySource;
pub use rdzv::{NodeRange, RdzvEndpoint};
pub(crate) use reach::{Reach, own_address, reach};

use crate::error::{Error, ExitCode, Result};
use crate::launch::{End, JobHandoff, LocalLaunch};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// The nodes of a run, and how it is started again after a failure.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub range: NodeRange,
    /// Node 0 is where the others come to; needed if there are several.
    pub node_rank: Option<usize>,
    /// Where the supervisors meet; needed if there are several.
    pub endpoint: Option<RdzvEndpoint>,
    /// The address that rank 0 is reachable at; loopback unless the spec says otherwise.
    pub bind: IpAddr,
    /// The address of `[distributed] interface`.
    pub interface: Option<IpAddr>,
    /// In the logs' headers; random when empty.
    pub run_id: String,
    /// What the nodes prove to each other; needed if there are several.
    pub key: Option<KeySource>,
    /// Restarts after failures, without progress in between.
    pub max_restarts: u32,
    /// For the nodes to come together, at first and after a loss.
    pub join: Duration,
    pub rejoin: Duration,
    /// For the workers to stop after a signal.
    pub grace: Duration,
    /// For a node to report once others have, or once it was told to end.
    pub report: Duration,
    /// Without a word from node 0, for a node that has nothing else to do: then node 0 is lost.
    pub silence: Duration,
    /// Equal on all nodes.
    pub plan_hash: String,
    /// The step of the newest checkpoint that workers started again would go on from, as a cheap look at the run's folder
    /// tells; progress refills the restarts.
    pub newest_checkpoint: fn(&JobHandoff) -> Option<u64>,
}

/// How a run ended that did not fail.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// `Done` or `Stopped`.
    pub code: ExitCode,
    /// The signal that asked for the stop.
    pub stopped_by: Option<i32>,
    /// The end of each of this node's ranks; `None` for one that was not started before the stop.
    pub ends: Vec<Option<End>>,
}

impl Nodes {
    /// Starts this node's workers, again where the run is worth it, and returns when all of them are gone and the run is over on
    /// all nodes.
    ///
    /// Call it from the main thread: on Linux the workers die with the calling thread. It takes over the
    /// stop signals, SIGTSTP and SIGCHLD; after it has returned, the process ignores the stop signals.
    ///
    /// Errors: a worker failed (with its report and the run's exit code), or could not be started.
    pub fn run(self, launch: LocalLaunch) -> Result<Outcome> {
        if launch.nproc == 0 {
            return Err(Error::usage("a run needs at least one process"));
        }
        agent::run(self, launch)
    }
}

impl Default for Nodes {
    /// One node, and no restarts.
    fn default() -> Self {
        Self {
            range: NodeRange::ONE,
            node_rank: None,
            endpoint: None,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            interface: None,
            run_id: String::new(),
            key: None,
            max_restarts: 0,
            join: Duration::from_secs(300),
            rejoin: Duration::from_secs(300),
            grace: Duration::from_secs(600),
            report: Duration::from_secs(15),
            silence: Duration::from_secs(60),
            plan_hash: String::new(),
            newest_checkpoint: |_| None,
        }
    }
}
