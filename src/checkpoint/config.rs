//! `[checkpoint]`: what is kept of a run, and what a stop signal leaves.

use super::{BestBy, Direction, Retention};
use crate::spec::{Period, choice};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
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
    /// Metric that ranks them.
    pub best: RankBy,
    /// Best checkpoints to keep besides. By default 1, where the metric is measured.
    #[schemars(range(max = 1_048_576))]
    pub keep_best: Option<usize>,
    /// Where tensors go that were saved on a device: `cuda:0` to `cuda:2`. By default each rank loads to its own.
    pub map_location: Option<BTreeMap<String, String>>,
    /// Write while training goes on.
    #[serde(rename = "async")]
    #[default = true]
    pub asynchronous: bool,
    /// What a run does about a stop signal.
    pub on_preempt: OnPreempt,
    /// How long a run may take from a stop signal to its end; then it is ended.
    #[default(Period::seconds(600))]
    pub grace: Period,
}

impl CheckpointConfig {
    /// The retention policy.
    pub fn retention(&self) -> Retention {
        let (metric, direction) = (self.best.name().to_owned(), self.best.direction());
        let best = self.keep_best.filter(|keep| *keep > 0).map(|keep| BestBy { metric, direction, keep });
        Retention { keep_last: (self.keep_last > 0).then_some(self.keep_last), best }
    }
}

choice! {
    /// The metrics that can rank checkpoints, as `metrics.jsonl` names them.
    RankBy:
    /// Mean loss of the validation split.
    ValLoss = "val.loss",
    /// Share of its samples whose class is found.
    ValAccuracy = "val.accuracy",
    /// Share of them whose class is among the five likeliest.
    ValTop5 = "val.top5",
    /// Mean absolute error.
    ValMae = "val.mae",
    /// Coefficient of determination.
    ValR2 = "val.r2",
    /// Of tokens: e to the loss.
    ValPerplexity = "val.perplexity",
    /// Mean loss of the training samples.
    TrainLoss = "train.loss",
}

impl RankBy {
    /// Whether small or large values are good.
    pub fn direction(self) -> Direction {
        match self {
            RankBy::ValAccuracy | RankBy::ValTop5 | RankBy::ValR2 => Direction::Max,
            RankBy::ValLoss | RankBy::ValMae | RankBy::ValPerplexity | RankBy::TrainLoss => Direction::Min,
        }
    }
}

choice! {
    /// What a run does about a stop signal.
    OnPreempt:
    /// Save at the next step boundary, then end.
    Save = "save",
    /// End at the next step boundary; the last checkpoint continues the run.
    Exit = "exit",
}
