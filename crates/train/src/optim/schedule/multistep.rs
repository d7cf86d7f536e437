//! `multistep`: PyTorch's `MultiStepLR`.

use super::{Curve, ScheduleConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `MultiStepLR`: times `gamma` at each milestone.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["milestones"]))]
pub(super) struct MultiStep {
    /// Times of the changes.
    pub milestones: Vec<u64>,
    /// Factor of each change.
    #[default = 0.1]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub gamma: f64,
}

impl Curve for MultiStep {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        base * self.gamma.powf(self.milestones.iter().filter(|m| **m <= t).count() as f64)
    }
}

impl ScheduleConfig for MultiStep {}
