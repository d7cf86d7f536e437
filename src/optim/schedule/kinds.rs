//! The schedules: each declares the keys of its table and has a closed form. Formulas and defaults are PyTorch's.

use super::{Curve, ScheduleConfig, Unit};
use crate::spec::Fields;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use std::f64::consts::PI;

/// From torchvision's reference scripts; PyTorch's default for `LinearLR`, 1/3, is too high for a warm-up.
pub(super) const WARMUP_START: f64 = 0.01;

/// The base learning rate.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Constant {}

impl Curve for Constant {
    fn lr(&self, base: f64, _: u64, _: u64) -> f64 {
        base
    }
}

impl ScheduleConfig for Constant {}

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

/// `LinearLR`: the factor changes from `start_factor` to `end_factor` over `total_iters`, then stays.
#[derive(Debug, Serialize, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
pub(super) struct Linear {
    /// Factor of the rate at the start.
    #[default(1.0 / 3.0)]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub start_factor: f64,
    /// Factor of the rate at the end.
    #[default = 1.0]
    #[schemars(range(min = 0.0, max = 1.0))]
    pub end_factor: f64,
    /// Time between the two. Default: 5; in a chain the schedule's length.
    #[schemars(range(min = 1))]
    pub total_iters: Option<u64>,
}

impl Curve for Linear {
    fn lr(&self, base: f64, t: u64, span: u64) -> f64 {
        let total = whole(self.total_iters, span);
        let done = t.min(total) as f64 / total as f64;
        base * (self.start_factor + (self.end_factor - self.start_factor) * done)
    }
}

impl ScheduleConfig for Linear {
    fn settle(&mut self, fields: &mut Fields<'_>) {
        if self.total_iters.is_none() && !fields.has("epochs") && !fields.has("steps") {
            self.total_iters = Some(5);
            fields.note_resolved("total_iters", 5);
        }
    }
}

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

/// A linear warm-up: `LinearLR` with `end_factor` 1 over the segment.
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

/// A time that defaults to the segment's length.
pub(super) fn whole(time: Option<u64>, span: u64) -> u64 {
    time.unwrap_or(span).max(1)
}

/// From `base` at 0 to `end` at 1 along half a cosine; periodic.
pub(super) fn cosine(base: f64, end: f64, at: f64) -> f64 {
    end + (base - end) * (1.0 + (PI * at).cos()) / 2.0
}

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
