//! The keys of `[launch]` that configure Slurm.

use schemars::JsonSchema;
use serde::Deserialize;

/// `[launch]`: the job in Slurm's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct SlurmConfig {
    /// After a stop on request in a Slurm job, have Slurm requeue the job.
    pub requeue: bool,
}
