//! `linear`: PyTorch's `LinearLR`.

use super::{Curve, ScheduleConfig, whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use spec::Fields;

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
