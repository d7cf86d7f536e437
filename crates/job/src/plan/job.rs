//! The keys of the top level.

use checkpoint::Every;
use collectives::Backend;
use ddp::device::{DeviceSpec, Precision};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;

/// The top-level keys, which every job has.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["name", "batch_size"]))]
pub(super) struct JobConfig {
    /// Name of the run; its folder is `runs/<name>`. Letters, digits, `.`, `_` and `-`, not starting with `.` or `-`.
    #[schemars(extend("x-changes-results" = false))]
    pub name: String,
    /// Seed of every random number: initial weights, shuffling, augmentation, dropout.
    pub seed: u64,
    /// Passes over the training data. Default: 1, or as many as `train.max_steps` takes if that is set.
    #[schemars(range(min = 1))]
    pub epochs: Option<u64>,
    /// Samples per process and micro-batch.
    #[default = 1]
    #[schemars(range(min = 1, max = 1_073_741_824))]
    pub batch_size: usize,
    /// How often a checkpoint is saved; unless `"never"`, the end of the run is saved too. An end by
    /// `train.stop_after` always is.
    #[schemars(extend("x-changes-results" = false))]
    pub save_every: Every,
    /// The library that exchanges gradients.
    pub backend: Backend,
    /// What each process computes on. `auto`: CUDA where a CUDA device is found, else the CPU. Without `N`: the device of
    /// the local rank.
    pub device: DeviceSpec,
    /// Type of the forward and backward passes; parameters, norms, losses and optimizer state stay f32.
    pub precision: Precision,
}

impl JobConfig {
    pub fn read(root: &mut Fields<'_>) -> Self {
        let config: Self = root.config();
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let name = &config.name;
        if root.is_str("name") && name.is_empty() {
            root.problem("name", "a name can't be empty");
        } else if !name.chars().all(plain) || name.starts_with(['.', '-']) {
            let why =
                "a name consists of letters, digits, `.`, `_` and `-`, and does not start with `.` or `-`";
            root.problem("name", why);
        }
        config
    }
}
