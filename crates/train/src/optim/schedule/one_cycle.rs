//! `one-cycle`: PyTorch's `OneCycleLR`.

use super::{Curve, ScheduleConfig, Unit, cosine, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::choice;

choice! {
    /// Form of both phases.
    Anneal:
    /// Half a cosine.
    Cos = "cos",
    /// A straight line.
    Linear = "linear",
}

/// `OneCycleLR`: two phases; momentum does not change.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct OneCycle {
    /// Largest rate. Default: the base rate.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub max_lr: Option<f64>,
    /// Part of the time in which the rate rises.
    #[default = 0.3]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub pct_start: f64,
    /// Form of both phases.
    pub anneal: Anneal,
    /// The first rate is `max_lr` / `div_factor`.
    #[default = 25.0]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub div_factor: f64,
    /// The last rate is the first one / `final_div_factor`.
    #[default = 1e4]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub final_div_factor: f64,
    /// Time of both phases. Default: the schedule's length.
    #[schemars(range(min = 1))]
    pub total_steps: Option<u64>,
}

impl Curve for OneCycle {
    fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        let max = self.max_lr.unwrap_or(base);
        let initial = max / self.div_factor;
        let rates = [initial, max, initial / self.final_div_factor];
        one_cycle(rates, self.pct_start, self.anneal, t, whole(self.total_steps, span))
    }
}

impl ScheduleConfig for OneCycle {
    const UNIT: Unit = Unit::Step;
}

/// Rises from the first rate to the second by step `pct_start x total - 1`, then falls to the third by step `total - 1`.
fn one_cycle([initial, max, min]: [f64; 3], pct_start: f64, anneal: Anneal, t: u64, total: u64) -> f64 {
    let (peak, end) = (pct_start * total as f64 - 1.0, total as f64 - 1.0);
    let t = (t as f64).min(end);
    let (from, to, at) =
        if t <= peak { (initial, max, t / peak) } else { (max, min, (t - peak) / (end - peak)) };
    // A phase of length zero (a cycle of one step, or a peak at step 0) is at its end.
    let at = if at.is_finite() { at } else { 1.0 };
    match anneal {
        Anneal::Cos => cosine(from, to, at),
        Anneal::Linear => from + (to - from) * at,
    }
}
