//! What `[dataset]` says of any data set; the other keys are its own.

use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// How batches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub struct LoaderConfig {
    /// Draw the training samples in a new order in each epoch.
    #[default = true]
    pub shuffle: bool,
    /// Leave out the samples that do not fill a batch on every rank. `false`: pad with samples from the start of the
    /// permutation; the last batch may be short.
    pub drop_last: bool,
    /// Threads that assemble batches; 0 assembles them in the training thread.
    #[default = 1]
    #[schemars(range(max = 256), extend("x-changes-results" = false))]
    pub workers: usize,
    /// Batches that are assembled ahead.
    #[default = 2]
    #[schemars(range(min = 1, max = 1024), extend("x-changes-results" = false))]
    pub prefetch: usize,
}
