//! `exponential`: PyTorch's `ExponentialLR`.

use super::{Curve, ScheduleConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `ExponentialLR`: `gamma^t`.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["gamma"]))]
pub(super) struct Exponential {
    /// Factor of each unit of time.
    #[default = 1.0]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub gamma: f64,
}

impl Curve for Exponential {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        base * self.gamma.powf(t as f64)
    }
}

impl ScheduleConfig for Exponential {}
