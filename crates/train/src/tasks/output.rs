//! What a step returns.

use crate::models::Target;
use base::error::{Error, Result};
use burn::tensor::Tensor;
use kernels::head::HeadSums;

/// The loss of a batch, and the terms of its metrics.
#[derive(Debug)]
pub struct StepOutput {
    /// `[1]`: a mean.
    pub loss: Tensor<1>,
    pub(crate) measured: Measured,
    pub(crate) gradients: Gradients,
    /// See [`Self::weigh_by_count`].
    pub(crate) by_count: bool,
    /// By the names of metrics: numerator and denominator.
    pub(crate) ratios: Vec<(String, [Term; 2])>,
    /// `[1]`: the mean cross-entropy of the rows, where the loss smooths their labels.
    pub(crate) unsmoothed: Option<Tensor<1>>,
}

/// What becomes of the ranks' gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradients {
    /// Their mean is used: the loss of each rank is of its own rows.
    Averaged,
    /// Their sum is used; see [`StepOutput::add_gradients`].
    Added,
}

/// What the loss is a mean over.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "one per batch")]
pub enum Measured {
    /// Rows of outputs `[rows, outputs]`, to be compared with the targets for the standard metrics: those of all targets, or of the trained
    /// ones ([`Target::trained`]).
    Rows(Tensor<2>),
    /// Rows whose outputs are not kept.
    Scored(HeadSums, usize),
    /// This many.
    Count(usize),
}

/// A number: known here, or being computed on the model's device (`[1]`).
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "a few per batch")]
pub enum Term {
    /// A number on the host.
    Known(f64),
    /// `[1]`.
    Computed(Tensor<1>),
}

impl From<f64> for Term {
    fn from(value: f64) -> Self {
        Term::Known(value)
    }
}

impl From<usize> for Term {
    fn from(value: usize) -> Self {
        Term::Known(value as f64)
    }
}

impl From<Tensor<1>> for Term {
    fn from(value: Tensor<1>) -> Self {
        Term::Computed(value)
    }
}

impl StepOutput {
    /// `loss` (`[1]`) is the mean over `count` samples, pixels or pairs; batches weigh by it in the mean loss of an epoch.
    pub fn new(loss: Tensor<1>, count: usize) -> Self {
        Self::from_parts(loss, Measured::Count(count))
    }

    /// `loss` is the mean over rows whose outputs are not kept.
    pub(crate) fn scored(loss: Tensor<1>, sums: HeadSums, rows: usize) -> Self {
        Self::from_parts(loss, Measured::Scored(sums, rows))
    }

    /// `loss` is the mean over the rows of `outputs`.
    pub(crate) fn of_rows(loss: Tensor<1>, outputs: Tensor<2>) -> Self {
        Self::from_parts(loss, Measured::Rows(outputs))
    }

    fn from_parts(loss: Tensor<1>, measured: Measured) -> Self {
        let gradients = Gradients::Averaged;
        Self { loss, measured, gradients, by_count: false, ratios: Vec::new(), unsmoothed: None }
    }

    /// The gradients of a step are those of the sum over all that its ranks and micro-batches count, divided by their number. The loss of one that counts
    /// nothing is finite, and without weight. Without this each sample has the same weight, however much of it is counted. All steps of a task do this, or none.
    pub fn weigh_by_count(self) -> Self {
        Self { by_count: true, ..self }
    }

    /// Adds the gradients of the ranks instead of averaging them. For a loss of the rows of all ranks, which every rank
    /// computes ([`StepContext::all_gather`](super::StepContext::all_gather)): each rank's gradient is then the part that its own rows have in it.
    /// This holds for parameters before the gather. One that is used after it (a learnt temperature) has its whole gradient on every rank: divide that
    /// by [`StepContext::world_size`](super::StepContext::world_size), as in `x.clone().detach() + (x.clone() - x.detach()) / world_size`.
    pub fn add_gradients(self) -> Self {
        Self { gradients: Gradients::Added, ..self }
    }

    /// This batch's terms of a metric of [`Task::metrics`](super::Task::metrics). The metric is the sum of all numerators
    /// over the sum of all denominators, over the batches of an epoch and all ranks.
    pub fn metric(mut self, name: &str, numerator: impl Into<Term>, denominator: impl Into<Term>) -> Self {
        self.ratios.push((name.to_owned(), [numerator.into(), denominator.into()]));
        self
    }

    /// What the loss is the mean over, if the step weighs by it; `target` is that of its batch.
    pub(crate) fn counted(&self, target: &Target) -> Option<usize> {
        let count = match (&self.measured, target.trained()) {
            (Measured::Count(count), _) => *count,
            (Measured::Rows(_) | Measured::Scored(..), Some(trained)) => trained.count(),
            (Measured::Rows(outputs), None) => outputs.dims()[0],
            (Measured::Scored(_, rows), _) => *rows,
        };
        self.by_count.then_some(count)
    }

    /// Checks that the loss and every term are one number.
    ///
    /// # Errors
    /// One is not (exit 78).
    pub fn check(&self) -> Result<()> {
        let single = |what: &str, tensor: &Tensor<1>| match tensor.dims() {
            [1] => Ok(()),
            shape => Err(Error::spec(format!("{what} has shape {shape:?}; expected [1], a mean or a sum"))),
        };
        single("the loss", &self.loss)?;
        for (name, terms) in &self.ratios {
            for term in terms {
                if let Term::Computed(tensor) = term {
                    single(&format!("a term of the metric `{name}`"), tensor)?;
                }
            }
        }
        Ok(())
    }

    /// The values without the graph behind them.
    pub(crate) fn inner(self) -> Self {
        let measured = match self.measured {
            Measured::Rows(outputs) => Measured::Rows(outputs.inner()),
            scored @ Measured::Scored(..) => scored,
            Measured::Count(count) => Measured::Count(count),
        };
        let term = |term| match term {
            Term::Computed(tensor) => Term::Computed(tensor.inner()),
            known @ Term::Known(_) => known,
        };
        let ratios = self.ratios.into_iter().map(|(name, terms)| (name, terms.map(term))).collect();
        Self { loss: self.loss.inner(), measured, ratios, ..self }
    }
}
