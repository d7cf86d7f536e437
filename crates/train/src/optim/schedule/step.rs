//! `step`: PyTorch's `StepLR`.

use super::{Curve, ScheduleConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `StepLR`: times `gamma` every `step_size`.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["step_size"]))]
pub(super) struct Step {
    /// Time between two changes.
    #[default = 1]
    #[schemars(range(min = 1))]
    pub step_size: u64,
    /// Factor of each change.
    #[default = 0.1]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub gamma: f64,
}

impl Curve for Step {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        base * self.gamma.powf((t / self.step_size.max(1)) as f64)
    }
}

impl ScheduleConfig for Step {}
