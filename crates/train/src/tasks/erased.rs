//! Tasks as trait objects.

use super::{Batch, MetricFacts, StepContext, StepOutput, Task, TaskModel};
use crate::models::AnyNet;
use base::error::{Error, Result};

/// A task whose model's type is known at run time.
pub trait AnyTask: Send + Sync {
    /// As [`Task::metrics`].
    fn metrics(&self) -> Vec<MetricFacts>;

    /// As [`Task::step`].
    ///
    /// # Errors
    /// The model is of another type than the task's (exit 78).
    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput>;

    /// Whether a training step runs the backward pass, too.
    fn runs_backward(&self) -> bool {
        false
    }
}

/// A task under its name, with the metrics that it declares.
pub(super) struct NamedTask<T> {
    name: String,
    task: T,
    metrics: Vec<MetricFacts>,
    /// Of the metrics, sorted.
    names: Vec<String>,
}

impl<T: Task> NamedTask<T> {
    pub fn new(name: &str, task: T) -> Self {
        let metrics = task.metrics();
        Self { name: name.to_owned(), task, names: sorted_names(&metrics), metrics }
    }
}

pub(super) fn sorted_names(metrics: &[MetricFacts]) -> Vec<String> {
    let mut names: Vec<String> = metrics.iter().map(|metric| metric.name.clone()).collect();
    names.sort_unstable();
    names
}

impl<T: Task> AnyTask for NamedTask<T> {
    fn metrics(&self) -> Vec<MetricFacts> {
        self.metrics.clone()
    }

    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let output = self.task.step(model_of(&self.name, net)?, converted(batch, net)?, context)?;
        measures(&self.name, &output, &self.names)?;
        Ok(output)
    }
}

/// The model of the task `name`.
///
/// # Errors
/// It is of another type (exit 78).
pub(super) fn model_of<'n, M: TaskModel + ?Sized>(name: &str, net: &'n AnyNet) -> Result<&'n M> {
    M::downcast(net).ok_or_else(|| {
        let expected = std::any::type_name::<M>();
        let what = format!("task `{name}` trains models of type `{expected}`, and the model is another");
        Error::spec(what).hint("name a model in `[model]` that was made for this task")
    })
}

/// The batch as a task takes it, with its input in the type that the network computes in.
///
/// # Errors
/// Those of the conversion.
pub(super) fn converted<B: TryFrom<Batch, Error: Into<Error>>>(batch: Batch, net: &AnyNet) -> Result<B> {
    Batch { input: batch.input.cast(net.dtype()), ..batch }.try_into().map_err(Into::into)
}

/// Checks that a step of the task `name` measured its metrics, whose names are sorted in `declared`.
///
/// # Errors
/// It did not (exit 78).
pub(super) fn measures(name: &str, output: &StepOutput, declared: &[String]) -> Result<()> {
    let mut measured: Vec<&str> = output.ratios.iter().map(|(name, _)| name.as_str()).collect();
    measured.sort_unstable();
    if declared == measured {
        return Ok(());
    }
    let list = |names: String| if names.is_empty() { "none".to_owned() } else { names };
    Err(Error::spec(format!(
        "task `{name}` declares the metrics {}, and its step measures {}",
        list(declared.join(", ")),
        list(measured.join(", ")),
    )))
}
