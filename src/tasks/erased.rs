//! Tasks as trait objects.

use super::{Batch, MetricFacts, StepContext, StepOutput, Task, TaskModel};
use crate::error::{Error, Result};
use crate::models::AnyNet;

/// A task whose model's type is known at run time.
pub trait AnyTask: Send + Sync {
    /// As [`Task::metrics`].
    fn metrics(&self) -> Vec<MetricFacts>;

    /// As [`Task::step`].
    ///
    /// # Errors
    /// The model is of another type than the task's (exit 78).
    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput>;
}

/// A task under its name, with the metrics that it declares.
pub(super) struct Named<T> {
    name: String,
    task: T,
    metrics: Vec<MetricFacts>,
    /// Of the metrics, sorted.
    names: Vec<String>,
}

impl<T: Task> Named<T> {
    pub fn new(name: &str, task: T) -> Self {
        let metrics = task.metrics();
        let mut names: Vec<String> = metrics.iter().map(|metric| metric.name.clone()).collect();
        names.sort_unstable();
        Self { name: name.to_owned(), task, metrics, names }
    }
}

impl<T: Task> AnyTask for Named<T> {
    fn metrics(&self) -> Vec<MetricFacts> {
        self.metrics.clone()
    }

    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let Some(model) = T::Model::of(net) else {
            let (name, expected) = (&self.name, std::any::type_name::<T::Model>());
            let what = format!("task `{name}` trains models of type `{expected}`, and the model is another");
            return Err(Error::spec(what).hint("name a model in `[model]` that was made for this task"));
        };
        let batch = Batch { input: batch.input.cast(net.dtype()), ..batch };
        let output = self.task.step(model, batch, context)?;
        let mut measured: Vec<&str> = output.ratios.iter().map(|(name, _)| name.as_str()).collect();
        measured.sort_unstable();
        if self.names != measured {
            let list = |names: String| if names.is_empty() { "none".to_owned() } else { names };
            return Err(Error::spec(format!(
                "task `{}` declares the metrics {}, and its step measures {}",
                self.name,
                list(self.names.join(", ")),
                list(measured.join(", ")),
            )));
        }
        Ok(output)
    }
}
