//! The keys of `[launch]` that configure the nodes of a run.

use super::{NodeRange, RdzvEndpoint};
use crate::spec::Period;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::net::{IpAddr, Ipv4Addr};

/// `[launch]`: the nodes, and how a run is started again.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct NodesConfig {
    /// Nodes of the run.
    #[default(NodeRange::ONE)]
    pub nnodes: NodeRange,
    /// Where the nodes' supervisors meet; the command line may say it too.
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// Restarts after failures, without progress in between.
    #[schemars(range(max = 1_048_576))]
    pub max_restarts: u32,
    /// How long the other nodes wait for one that was lost.
    #[default(Period::seconds(300))]
    pub rejoin_timeout: Period,
    /// Address that rank 0 listens on.
    #[default(IpAddr::V4(Ipv4Addr::LOCALHOST))]
    #[schemars(extend("x-expected" = "an IP address, such as \"127.0.0.1\" or \"0.0.0.0\""))]
    pub bind: IpAddr,
}
