//! A run over one or several nodes, and over as many generations of workers as it takes.
//!
//! Each node has a supervisor ([`agent`]) with its own workers. The one of node 0 also hosts the [`coordinator`], to which all
//! of them, itself included, are connected; what it decides is in [`policy`], a state machine without
//! I/O ([`events`] go in, actions come out).

mod agent;
mod awaited;
mod coordinator;
mod events;
mod meet;
mod message;
mod policy;

pub(super) use agent::run;
pub(super) use events::{Failure, NodeEnd, Weight};
pub(super) use message::{Closed, Link, Order, Report, Start};

use super::key::KeySource;
use super::rdzv::{NodeRange, RdzvEndpoint};
use std::net::IpAddr;
use std::time::Duration;

/// The nodes of a run, and how it is started again after a failure.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub range: NodeRange,
    /// Node 0 is where the others come to; needed if there are several.
    pub node_rank: Option<usize>,
    /// Where the supervisors meet; needed if there are several.
    pub endpoint: Option<RdzvEndpoint>,
    /// The address of `[distributed] interface`.
    pub interface: Option<IpAddr>,
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
}

impl Default for Nodes {
    /// One node, and no restarts.
    fn default() -> Self {
        Self {
            range: NodeRange::ONE,
            node_rank: None,
            endpoint: None,
            interface: None,
            key: None,
            max_restarts: 0,
            join: Duration::from_secs(300),
            rejoin: Duration::from_secs(300),
            grace: Duration::from_secs(600),
            report: Duration::from_secs(15),
            silence: Duration::from_secs(60),
            plan_hash: String::new(),
        }
    }
}
