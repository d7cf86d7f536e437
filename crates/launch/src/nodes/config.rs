//! The keys of `[launch]` that configure the nodes of a run.

use super::{NodeRange, RdzvEndpoint};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Period;
use std::net::{IpAddr, Ipv4Addr};

/// `[launch]`: the nodes, and how a run is started again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct NodesConfig {
    /// Nodes, each with a supervisor and `nproc_per_node` processes; a range lets nodes join and leave
    /// ([clusters.md](clusters.md#several-nodes)).
    #[default(NodeRange::ONE)]
    pub nnodes: NodeRange,
    /// Rendezvous of the nodes: an address of node 0, or a file on a file system that all nodes share. The flag
    /// `--rdzv-endpoint` overrides it.
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// Restarts after failures without progress in between ([failures.md](failures.md#restarts)).
    #[schemars(range(max = 1_048_576))]
    pub max_restarts: u32,
    /// How long the other nodes wait for a lost one.
    #[default(Period::seconds(300))]
    pub rejoin_timeout: Period,
    /// Address on which rank 0 listens.
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    #[schemars(extend("x-expected" = "an IP address, such as \"127.0.0.1\" or \"0.0.0.0\""))]
    pub bind: IpAddr,
}
