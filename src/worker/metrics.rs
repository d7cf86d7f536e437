//! Reported metrics, by name, from the sums of an epoch or an evaluation.

use crate::train::Sums;
use serde_json::{Map, Value, json};

/// Which metrics to report besides the usual ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    pub top5: bool,
    pub perplexity: bool,
}

/// What the targets' kind makes worth reporting: accuracies for classes, errors for floats.
pub fn named(sums: &Sums, reported: Reported) -> Vec<(&'static str, f64)> {
    let mut metrics = vec![("loss", sums.mean_loss())];
    if sums.elements > 0.0 {
        metrics.extend([("mae", sums.mae()), ("mse", sums.squared / sums.elements), ("r2", sums.r2())]);
        return metrics;
    }
    metrics.push(("accuracy", sums.accuracy()));
    if reported.top5 {
        metrics.push(("top5", sums.top5()));
    }
    if reported.perplexity {
        metrics.push(("perplexity", sums.perplexity()));
    }
    metrics
}

/// All of them as one JSON object, with `n`, the number of samples.
pub fn json(sums: &Sums, reported: Reported) -> Value {
    let mut object = Map::new();
    for (name, value) in named(sums, reported) {
        object.insert(name.to_owned(), json!(value));
    }
    object.insert("n".to_owned(), json!(sums.samples as u64));
    Value::Object(object)
}
