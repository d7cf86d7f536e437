//! Metrics besides those that the targets' kind brings.

use super::Term;
use crate::models::Target;
use burn::tensor::Tensor;

/// A metric of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricFacts {
    /// Its name after `train.` and `val.`
    pub name: String,
    /// Whether larger values are better.
    pub prefers_larger: bool,
}

impl MetricFacts {
    /// A metric whose larger values are better.
    pub fn larger_is_better(name: &str) -> Self {
        Self { name: name.to_owned(), prefers_larger: true }
    }

    /// A metric whose smaller values are better.
    pub fn smaller_is_better(name: &str) -> Self {
        Self { name: name.to_owned(), prefers_larger: false }
    }
}

/// A metric of outputs and targets, `[[metric]] name = "…"`. It is its own config: its fields are the keys of the table.
pub trait Metric: Send + Sync + 'static {
    /// Whether larger values are better.
    fn prefers_larger(&self) -> bool {
        true
    }

    /// Numerator and denominator of one batch, from outputs `[rows, outputs]` and targets, both without autodiff. The
    /// metric is the sum of all numerators over the sum of all denominators, over batches and ranks.
    fn measure(&self, outputs: Tensor<2>, target: Target) -> [Term; 2];
}
