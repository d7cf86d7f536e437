//! `cosine`: PyTorch's `CosineAnnealingLR`.

use super::{Curve, ScheduleConfig, cosine, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `CosineAnnealingLR`: half a cosine from the base rate to `eta_min` over `t_max`, and back up after that.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Cosine {
    /// Time from the base rate to `eta_min`. Default: the schedule's length.
    #[schemars(range(min = 1))]
    pub t_max: Option<u64>,
    /// Smallest rate.
    #[schemars(range(min = 0.0))]
    pub eta_min: f64,
}

impl Curve for Cosine {
    fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        cosine(base, self.eta_min, t as f64 / whole(self.t_max, span) as f64)
    }
}

impl ScheduleConfig for Cosine {}
