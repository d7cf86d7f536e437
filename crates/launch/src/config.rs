//! The keys of `[launch]` that configure the processes of one node.

use super::Nproc;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Period;

/// `[launch]`: the processes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct LaunchConfig {
    /// Processes on each node. `devices`: one per device, else one; `auto`: one per device, else one per core; `gpu`: one
    /// per device, an error (69) without one; `cpu`: one per core.
    #[default(Nproc::Devices)]
    pub nproc_per_node: Nproc,
    /// Compute threads of each process. Default: cores / processes.
    #[schemars(range(min = 1, max = 4096))]
    pub threads: Option<usize>,
    /// How long the other processes may take to end after one has failed: they write what they know of the failure, and finish a
    /// checkpoint that is being written. Then they are killed, and that checkpoint is lost.
    #[default(Period::seconds(1))]
    pub shutdown_timeout: Period,
    /// Allow more processes on a node than it has devices. Gradients then go by gloo unless `backend = "nccl"`.
    pub share_devices: bool,
}
