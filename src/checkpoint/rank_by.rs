//! The metrics that rank checkpoints and end runs.

use crate::spec::{Syntax, syntax};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// A metric, under its name in `metrics.jsonl`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RankBy {
    #[default]
    ValLoss,
    ValAccuracy,
    ValTop5,
    ValMae,
    ValR2,
    ValPerplexity,
    TrainLoss,
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
    /// The metrics that do not depend on the task, in the order of messages.
    pub const STANDARD: [Self; 7] = [
        Self::ValLoss,
        Self::ValAccuracy,
        Self::ValTop5,
        Self::ValMae,
        Self::ValR2,
        Self::ValPerplexity,
        Self::TrainLoss,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ValLoss => "val.loss",
            Self::ValAccuracy => "val.accuracy",
            Self::ValTop5 => "val.top5",
            Self::ValMae => "val.mae",
            Self::ValR2 => "val.r2",
            Self::ValPerplexity => "val.perplexity",
            Self::TrainLoss => "train.loss",
            Self::Own(metric) => metric.name,
        }
    }

    /// Whether larger values are better.
    pub fn prefers_larger(self) -> bool {
        match self {
            Self::Own(metric) => metric.prefers_larger,
            _ => matches!(self, Self::ValAccuracy | Self::ValTop5 | Self::ValR2),
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

    fn read(value: &toml::Value) -> Option<Self> {
        let name = value.as_str()?;
        let standard = Self::STANDARD.into_iter().find(|metric| metric.name() == name);
        Some(standard.unwrap_or_else(|| Self::own(name, false)))
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
