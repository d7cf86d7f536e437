//! `cosine-restarts`: PyTorch's `CosineAnnealingWarmRestarts`.

use super::{Curve, ScheduleConfig, cosine};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

/// `CosineAnnealingWarmRestarts`: a cosine of length `t_0`, then further ones, each `t_mult` times as long as the one
/// before.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["t_0"]))]
pub(super) struct CosineRestarts {
    /// Length of the first cosine.
    #[default = 1]
    #[schemars(range(min = 1))]
    pub t_0: u64,
    /// Factor of the length of each further cosine.
    #[default = 1]
    #[schemars(range(min = 1))]
    pub t_mult: u64,
    /// Smallest rate.
    #[schemars(range(min = 0.0))]
    pub eta_min: f64,
}

impl Curve for CosineRestarts {
    fn lr(&self, base: f64, t: u64, _: u64) -> f64 {
        let (t, length) = within_cycle(t, self.t_0.max(1), self.t_mult.max(1));
        cosine(base, self.eta_min, t as f64 / length as f64)
    }
}

impl ScheduleConfig for CosineRestarts {}

/// The time since the start of the current cycle, and the cycle's length.
fn within_cycle(t: u64, first: u64, mult: u64) -> (u64, u64) {
    if mult == 1 {
        return (t % first, first);
    }
    // Cycles grow geometrically: at most 64 iterations for any `t`.
    let (mut t, mut length) = (t, first);
    while t >= length {
        t -= length;
        length = length.saturating_mul(mult);
    }
    (t, length)
}
