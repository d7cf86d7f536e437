//! `constant`: the base learning rate.

use super::{Curve, ScheduleConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

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
