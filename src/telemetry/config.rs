//! `[metrics]`: what is reported, and how often.

use crate::spec::{Syntax, syntax};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;

/// `[metrics]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct MetricsConfig {
    /// Optimizer steps between step events.
    #[default = 10]
    #[schemars(range(min = 1))]
    pub log_every: u64,
    /// Whether to report top-5 accuracy; by default of more than five classes.
    pub top5: Top5,
}

/// `None`: whether there are more than five classes is known once the data is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Top5(pub Option<bool>);

impl Top5 {
    /// Whether it is reported over so many classes.
    pub fn of(self, classes: usize) -> bool {
        self.0.unwrap_or(classes > 5)
    }
}

impl Syntax for Top5 {
    const EXPECTED: &'static str = "true, false or \"auto\"";
    const TYPES: &'static [&'static str] = &["boolean", "string"];

    fn read(value: &toml::Value) -> Option<Self> {
        match value {
            toml::Value::Boolean(b) => Some(Self(Some(*b))),
            toml::Value::String(s) if s == "auto" => Some(Self(None)),
            _ => None,
        }
    }

    fn write(&self) -> toml::Value {
        self.0.map_or_else(|| "auto".into(), toml::Value::Boolean)
    }
}

syntax!(Top5);
