//! A run over one or more nodes and any number of generations of workers: where the nodes meet, how they
//! authenticate, and when workers start and end.
//!
//! Each node has a supervisor (`agent`) with its own workers (the root of this crate). Node 0's supervisor also hosts the
//! `coordinator`, to which all supervisors, including its own, are connected. Its decisions are in `policy`, a state
//! machine without I/O (`events` in, actions out).

mod agent;
mod background;
mod config;
mod coordinator;
mod events;
mod message;
mod policy;
mod rdzv;
mod rdzv_conf;
mod setup;

pub(crate) use collectives::rendezvous::{Addresses, KeySource, Meeting, RdzvEndpoint, addresses};
pub use config::NodesConfig;
pub use events::Limits;
pub use rdzv::NodeRange;
pub(crate) use rdzv_conf::{RdzvBackend, RdzvConf, RdzvId};

use crate::{ExitCode, LocalLaunch};
use base::error::{Error, Result};
use spec::Values;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// The nodes of a run, and how it is restarted after a failure.
#[derive(Clone)]
pub struct Nodes {
    /// Nodes, restarts and times.
    pub limits: Limits,
    /// Node 0 accepts the others; required with several nodes.
    pub node_rank: Option<usize>,
    /// Where the supervisors meet; required with several nodes.
    pub endpoint: Option<RdzvEndpoint>,
    /// The address that rank 0 listens on; loopback unless the spec says otherwise.
    pub bind: IpAddr,
    /// The address of `[distributed] interface`.
    pub interface: Option<IpAddr>,
    /// The key for authentication between nodes; required with several nodes.
    pub key: Option<KeySource>,
    /// Without a message from node 0, for a node that is waiting; after that node 0 is lost.
    pub silence: Duration,
    /// The same on all nodes.
    pub plan_hash: String,
    /// The keys on which the hash depends, with their values, for a message about nodes that differ.
    pub keys: Values,
    /// `--rdzv-id`; the same on all nodes.
    pub rdzv_id: Option<String>,
    /// The step of the newest checkpoint, from which restarted workers would resume, according to a quick check of the
    /// run's folder. Progress resets the number of restarts. `None` if only the workers know of checkpoints.
    pub newest_checkpoint: Option<Arc<dyn Fn() -> Option<u64> + Send + Sync>>,
}

impl Nodes {
    /// Checks what is known before anything is started: with several nodes, their endpoint, their key and this node's rank.
    ///
    /// # Errors
    /// They are missing, can't be read, or contradict the number of nodes (exit 2).
    pub fn check(&self) -> Result<()> {
        setup::place(self).map(drop)
    }

    /// Runs this node's workers, with restarts where a failure permits it; returns when all of them have ended and
    /// the run is over on all nodes: `Done` or `Stopped`.
    ///
    /// Call it from the main thread: on Linux the workers die with the calling thread. It takes over the stop
    /// signals, SIGTSTP and SIGCHLD; after it has returned, the process ignores the stop signals.
    ///
    /// Errors: a worker failed (with its report and the run's exit code), or could not be started.
    pub fn run(self, launch: LocalLaunch) -> Result<ExitCode> {
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
            limits: Limits::new(NodeRange::ONE),
            node_rank: None,
            endpoint: None,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            interface: None,
            key: None,
            silence: Duration::from_secs(60),
            plan_hash: String::new(),
            keys: Values::new(),
            rdzv_id: None,
            newest_checkpoint: None,
        }
    }
}
