//! Configuration of the process group: engine and time limits.

use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Period, choice};
use std::time::Duration;

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

/// `[distributed]`: time limits of the process group.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct DistributedConfig {
    /// How long a collective waits for its peers.
    #[default(Period::seconds(1800))]
    #[schemars(extend("x-changes-results" = false))]
    pub timeout: Period,
    /// How long the rendezvous waits for all ranks. A rank that comes before rank 0 waits that long for it, and as long again for the others.
    #[default(Period::seconds(300))]
    #[schemars(extend("x-changes-results" = false))]
    pub init_timeout: Period,
}

/// What this process knows about the run; MPI and the other ranks must agree with it.
#[derive(Clone, Debug)]
pub struct MpiConfig {
    /// This process's rank.
    pub rank: usize,
    /// The world size.
    pub world_size: usize,
    /// Digest of what the ranks are about to run, at most 128 bytes; different digests fail the start.
    pub plan_hash: String,
    /// Time limit from the call until all ranks are connected.
    pub init_timeout: Duration,
    /// Timeout of each later collective.
    pub timeout: Duration,
}
