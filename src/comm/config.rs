//! Configuration of the process group: engine, transport, timeouts.

use super::gloo::{AlgorithmChoice, GlooOptions, Transport};
use crate::spec::{Fields, Period, choice};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

choice! {
    /// Which engine moves gradients between processes.
    Backend:
    /// NCCL on CUDA devices, else gloo.
    Auto = "auto",
    /// Shared memory inside a host, TCP between hosts; for every device.
    Gloo = "gloo",
    /// NVIDIA's, between CUDA devices.
    Nccl = "nccl",
    /// The cluster's own MPI.
    Mpi = "mpi",
}

/// `[distributed]`: the process group.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct DistributedConfig {
    /// How long a collective waits for its peers.
    #[default(Period::seconds(1800))]
    #[schemars(extend("x-changes-results" = false))]
    pub timeout: Period,
    /// How long the rendezvous waits for all ranks.
    #[default(Period::seconds(300))]
    #[schemars(extend("x-changes-results" = false))]
    pub init_timeout: Period,
    /// How two ranks exchange bytes.
    pub transport: Transport,
    /// How an all-reduce is carried out.
    pub algorithm: AlgorithmChoice,
    /// Network interface to which peers connect, such as `eth0`. Default: the one that reaches rank 0.
    #[schemars(extend("x-changes-results" = false))]
    pub interface: Option<String>,
    /// TCP connections for data between two processes; not with `shm`. Default: 1 within a host, 4 between hosts.
    #[schemars(range(min = 1, max = 16), extend("x-changes-results" = false))]
    pub sockets: Option<usize>,
}

impl DistributedConfig {
    pub fn read(fields: &mut Fields<'_>) -> Self {
        let config: Self = fields.config();
        let no_name = |i: &String| i.is_empty() || i.contains(|c: char| c.is_whitespace() || c == '/');
        if config.interface.as_ref().is_some_and(no_name) {
            fields.problem("interface", "expected the name of a network interface, such as \"eth0\"");
        }
        if config.transport == Transport::Shm && config.sockets.is_some() {
            fields.problem_with_key("sockets", "counts TCP connections; `transport = \"shm\"` makes none");
        }
        config
    }

    /// The part that configures the gloo engine.
    pub fn gloo(&self) -> GlooOptions {
        GlooOptions {
            transport: self.transport,
            algorithm: self.algorithm,
            interface: self.interface.clone(),
            sockets: self.sockets,
            host: None,
        }
    }
}
