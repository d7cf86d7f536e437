//! `[metrics]`: which metrics are written, and how often.

use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{EverySteps, Syntax, syntax};

/// `[metrics]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct MetricsConfig {
    /// Optimizer steps per `step` line of `metrics.jsonl`.
    #[default = 10]
    #[schemars(range(min = 1))]
    pub log_every: u64,
    /// Measure top-5 accuracy; `auto` does so with more than five classes.
    pub top5: Top5,
    /// Count the predictions of each evaluation by class, for the report: confusion matrix, precision and recall.
    #[default = true]
    pub per_class: bool,
    /// Validation samples with the largest losses that each evaluation writes down for the report, images as small pictures, rows of
    /// a table with their cells; of a language model, texts that it generates. 0: none.
    #[default = 16]
    #[schemars(range(min = 0, max = 64))]
    pub samples: usize,
    /// How often a line of digests of the step's inputs, gradients, parameters and optimizer state is written to `digests.jsonl`, as in
    /// `"100 steps"`, for `ddp-run bisect` ([compare.md](compare.md)).
    pub digests: EverySteps,
}

/// `None`: `auto`, decided when the data set is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Top5(pub Option<bool>);

impl Top5 {
    /// Whether top-5 accuracy is measured with this number of classes.
    pub fn applies(self, classes: usize) -> bool {
        self.0.unwrap_or(classes > 5)
    }
}

impl Syntax for Top5 {
    const EXPECTED: &'static str = "true, false or \"auto\"";
    const TYPES: &'static [&'static str] = &["boolean", "string"];
    const WORDS: &'static [&'static str] = &["auto"];

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
