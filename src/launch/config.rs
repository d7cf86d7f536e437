//! The keys of `[launch]` that configure the processes of one node.

use super::Nproc;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// `[launch]`: the processes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct LaunchConfig {
    /// Processes on each node.
    #[default(Nproc::Devices)]
    pub nproc_per_node: Nproc,
    /// Compute threads of each of them; by default cores / processes.
    #[schemars(range(min = 1, max = 4096))]
    pub threads: Option<usize>,
    /// Whether processes of a node may take the same device.
    pub share_devices: bool,
}
