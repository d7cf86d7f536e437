//! `noam`: the schedule of "Attention is all you need".

use super::{Curve, ScheduleConfig, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// "Attention is all you need", 5.3: `base x d_model^-0.5 x min(n^-0.5, n x warmup_steps^-1.5)` with `n = t + 1`.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["d_model"]))]
pub(super) struct Noam {
    /// Width of the model.
    #[default = 1]
    #[schemars(range(min = 1))]
    pub d_model: u64,
    /// Length of the warm-up.
    #[default = 4000]
    #[schemars(range(min = 1))]
    pub warmup_steps: u64,
}

impl Curve for Noam {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        let (n, warmup) = (t as f64 + 1.0, self.warmup_steps.max(1) as f64);
        base / (self.d_model.max(1) as f64).sqrt() * (1.0 / n.sqrt()).min(n * warmup.powf(-1.5))
    }
}

impl ScheduleConfig for Noam {
    const UNIT: Unit = Unit::Step;
    const WARMS_UP: bool = false;
}
