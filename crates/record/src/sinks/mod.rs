//! Sinks: the observers that ship with ddp-run, a file each. `[[observer]]` names one with its keys; `[metrics] sinks`
//! names those that need none.

mod csv;
mod exec;
mod mlflow;
mod prometheus;
#[cfg(test)]
mod testing;

use super::observers::{ObserverConfig, ObserverKind, ObserverPlan};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use spec::Fields;

/// Where a sink keeps its files in the run's folder, which is archived with the run.
pub const FOLDER: &str = "metrics";

/// The keys of `[metrics]` about sinks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct SinksConfig {
    /// Observers of the run with the defaults of their keys: `csv`, `mlflow`, `prometheus`, or user-defined ones. An `[[observer]]`
    /// table of the same name has the keys; the sink then exists once.
    pub sinks: Vec<String>,
}

/// The names that ship with ddp-run.
pub fn standard_kinds() -> [(&'static str, ObserverKind); 4] {
    [
        ("csv", ObserverKind::of_config::<csv::Csv>()),
        ("mlflow", ObserverKind::of_config::<mlflow::MlFlow>()),
        ("prometheus", ObserverKind::of_config::<prometheus::Prometheus>()),
        ("exec", ObserverKind::of_config::<exec::Exec>()),
    ]
}

/// Reads `[metrics] sinks`, given the names of the `[[observer]]` tables and all kinds: the observers without a table.
pub fn short_form(
    fields: &mut Fields<'_>,
    sinks: &[String],
    tables: &[&str],
    kinds: &[(&str, ObserverKind)],
) -> Vec<ObserverPlan> {
    let mut plans = Vec::new();
    for (i, name) in sinks.iter().enumerate() {
        let at = ["sinks", &i.to_string()];
        let Some((_, kind)) = kinds.iter().find(|(known, _)| known == name) else {
            let known: Vec<&str> = kinds.iter().map(|(known, _)| *known).collect();
            fields.unknown_word_at(&at, "unknown sink", name, &known);
            continue;
        };
        if sinks[..i].contains(name) {
            fields.problem_at(&at, "listed twice");
        } else if !tables.contains(&name.as_str()) {
            match (kind.usual)(name) {
                Ok(plan) => plans.push(plan),
                Err(why) => {
                    let why = format!("needs a table, `[[observer]]` with `name = \"{name}\"`: {why}");
                    fields.problem_at(&at, why);
                }
            }
        }
    }
    plans
}

/// A number of an event; JSON has no NaN, so that is `null` there. `None` if the key is absent.
fn number(event: &Value, key: &str) -> Option<f64> {
    match event.get(key)? {
        Value::Null => Some(f64::NAN),
        value => value.as_f64(),
    }
}

/// The metrics of a split in an `epoch` event, without the number of samples.
fn metrics<'a>(event: &'a Value, split: &str) -> impl Iterator<Item = (&'a str, f64)> + use<'a> {
    let values = event.get(split).and_then(Value::as_object).into_iter().flatten();
    values.filter(|(name, _)| *name != "n").filter_map(|(name, value)| {
        Some((name.as_str(), if value.is_null() { f64::NAN } else { value.as_f64()? }))
    })
}
