//! The keys of `[dataset]` that all data sets share.

use super::LoaderOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// How batches are assembled.
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
    /// Batches assembled ahead of the training step.
    #[default = 2]
    #[schemars(range(min = 1, max = 1024), extend("x-changes-results" = false))]
    pub prefetch: usize,
}

impl LoaderConfig {
    /// For all batches of an order, which leaves out what `drop_last` drops.
    pub fn options(&self, batch_size: usize, seed: u64) -> LoaderOptions {
        let Self { workers, prefetch, .. } = *self;
        LoaderOptions { batch_size, seed, epoch: 0, start_batch: 0, workers, prefetch }
    }
}
