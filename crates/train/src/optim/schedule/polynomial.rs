//! `polynomial`: PyTorch's `PolynomialLR`.

use super::{Curve, ScheduleConfig, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `PolynomialLR`: `(1 - t / total_iters)^power`.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Polynomial {
    /// Exponent of (1 - t / total).
    #[default = 1.0]
    #[schemars(range(min = 0.0))]
    pub power: f64,
    /// Time until the rate is 0. Default: the schedule's length.
    #[schemars(range(min = 1))]
    pub total_iters: Option<u64>,
}

impl Curve for Polynomial {
    fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        let total = whole(self.total_iters, span);
        base * (1.0 - t.min(total) as f64 / total as f64).powf(self.power)
    }
}

impl ScheduleConfig for Polynomial {}
