//! The metrics that rank checkpoints and end runs.

use base::named;
use smart_default::SmartDefault;
use spec::{Syntax, syntax};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

named! {
    /// A metric that does not depend on the task, under its name in `metrics.jsonl`; in the order of messages.
    #[derive(Default)]
    pub enum StandardMetric {
        #[default]
        ValLoss = "val.loss",
        ValAccuracy = "val.accuracy",
        ValTop5 = "val.top5",
        ValMae = "val.mae",
        ValR2 = "val.r2",
        ValPerplexity = "val.perplexity",
        TrainLoss = "train.loss",
    }
}

/// A metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, SmartDefault)]
pub enum RankBy {
    /// One that every task may have.
    #[default]
    Standard(StandardMetric),
    /// One of the task or of `[[metric]]`.
    Own(OwnMetric),
}

/// A metric that a user's crate measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMetric {
    /// With `val.` or `train.` before it.
    name: &'static str,
    /// Known once the plan is resolved.
    prefers_larger: bool,
}

impl OwnMetric {
    /// Whether the evaluation measures it, and its name there; else training does.
    pub fn split(self) -> Option<(bool, &'static str)> {
        let val = self.name.strip_prefix("val.").map(|name| (true, name));
        val.or_else(|| Some((false, self.name.strip_prefix("train.")?)))
    }
}

impl RankBy {
    /// The name in `metrics.jsonl`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Standard(metric) => metric.name(),
            Self::Own(metric) => metric.name,
        }
    }

    /// Whether larger values are better.
    pub fn prefers_larger(self) -> bool {
        use StandardMetric::{ValAccuracy, ValR2, ValTop5};
        match self {
            Self::Standard(metric) => matches!(metric, ValAccuracy | ValTop5 | ValR2),
            Self::Own(metric) => metric.prefers_larger,
        }
    }

    /// A metric of the task, with `val.` or `train.` before its name.
    pub fn own(name: &str, prefers_larger: bool) -> Self {
        Self::Own(OwnMetric { name: interned(name), prefers_larger })
    }
}

impl fmt::Display for RankBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Any name is read as one of the task's; the plan knows which there are.
impl Syntax for RankBy {
    const EXPECTED: &'static str = "the name of a metric, such as \"val.loss\"";
    const TYPES: &'static [&'static str] = &["string"];
    const WORDS: &'static [&'static str] = &StandardMetric::NAMES;

    fn read(value: &toml::Value) -> Option<Self> {
        let name = value.as_str()?;
        Some(StandardMetric::parse(name).map_or_else(|| Self::own(name, false), Self::Standard))
    }

    fn write(&self) -> toml::Value {
        self.name().into()
    }
}

syntax!(RankBy);

/// The name, kept for the life of the process: specs have few, and a metric stays `Copy`.
fn interned(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    names.insert(kept);
    kept
}
