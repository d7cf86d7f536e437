//! `inverse-sqrt`: fairseq's `inverse_sqrt`.

use super::{Curve, ScheduleConfig, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// A linear warm-up to the base rate, then `base x sqrt(warmup_steps / n)`, with `n = t + 1` (fairseq).
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct InverseSqrt {
    /// Length of the linear warm-up to the base rate.
    #[default = 4000]
    #[schemars(range(min = 1))]
    pub warmup_steps: u64,
}

impl Curve for InverseSqrt {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        let (n, warmup) = (t as f64 + 1.0, self.warmup_steps.max(1) as f64);
        base * (n / warmup).min((warmup / n).sqrt())
    }
}

impl ScheduleConfig for InverseSqrt {
    const UNIT: Unit = Unit::Step;
    const WARMS_UP: bool = false;
}
