//! `[checkpoint]`: retention, and what a run does on a stop signal.

use super::RankBy;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Period, choice};
use std::collections::BTreeMap;

/// `[checkpoint]`
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct CheckpointConfig {
    /// Newest checkpoints to keep; 0 keeps all.
    #[default = 3]
    #[schemars(range(max = 1_048_576))]
    pub keep_last: usize,
    /// Metric that ranks checkpoints, measured with exactly the saved weights: `val.loss`, `val.accuracy`, `val.top5`,
    /// `val.mae`, `val.r2`, `val.perplexity` of a language model, `train.loss` (over the epoch that ends there), or one of
    /// the task or of `[[metric]]` (`val.dice`). A save at the end of an epoch waits for the evaluation; one in mid-epoch
    /// is not ranked.
    pub best: RankBy,
    /// Best checkpoints to keep in addition; of equal ones those with the lower `val.loss`, then the later ones. An epoch that is the best so
    /// far is saved whatever `save_every` is, but not with `keep_best = 0` or `save_every = "never"`. Default: 1; 0 where `best` is never measured.
    #[schemars(range(max = 1_048_576))]
    pub keep_best: Option<usize>,
    /// Where tensors of a device are loaded to, in PyTorch's form: `{ "cuda:0" = "cuda:2" }`. Without it each rank
    /// loads to its own device.
    pub map_location: Option<BTreeMap<String, String>>,
    /// Write checkpoints while training continues.
    #[serde(rename = "async")]
    #[default = true]
    pub asynchronous: bool,
    /// What to do on a stop signal, at the next step boundary.
    pub on_preempt: OnPreempt,
    /// Time from a stop signal until a run that has not ended is killed.
    #[default(Period::seconds(600))]
    pub grace: Period,
}

choice! {
    /// What to do on a stop signal, at the next step boundary.
    OnPreempt:
    /// Save, then end.
    Save = "save",
    /// End without a save; the last checkpoint continues the run.
    Exit = "exit",
}
