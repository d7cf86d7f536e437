//! `warmup`: a linear warm-up.

use super::{Curve, ScheduleConfig, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::Fields;

/// From torchvision's reference scripts; PyTorch's default for `LinearLR`, 1/3, is too high for a warm-up.
pub(super) const WARMUP_START: f64 = 0.01;

/// A linear warm-up to the base rate: `LinearLR` with `end_factor` 1. Its length (`steps` or `epochs`) is required.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Warmup {
    /// Factor of the rate at the start.
    #[default(WARMUP_START)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub start_factor: f64,
}

impl Curve for Warmup {
    fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        base * (self.start_factor + (1.0 - self.start_factor) * (t as f64 / span.max(1) as f64).min(1.0))
    }
}

impl ScheduleConfig for Warmup {
    const UNIT: Unit = Unit::Step;
    const WARMS_UP: bool = false;

    fn settle(&mut self, fields: &mut Fields<'_>) {
        if !fields.has("epochs") && !fields.has("steps") {
            fields.problem("name", "a warm-up needs its length: `steps` or `epochs`");
        }
    }
}
