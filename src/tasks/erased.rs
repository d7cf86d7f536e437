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

/// A task under its name.
pub(super) struct Named<T> {
    pub name: String,
    pub task: T,
}

impl<T: Task> AnyTask for Named<T> {
    fn metrics(&self) -> Vec<MetricFacts> {
        self.task.metrics()
    }

    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let Some(model) = T::Model::of(net) else {
            let (name, expected) = (&self.name, std::any::type_name::<T::Model>());
            let what = format!("task `{name}` trains models of type `{expected}`, and the model is another");
            return Err(Error::spec(what).hint("name a model in `[model]` that was made for this task"));
        };
        let batch = Batch { input: batch.input.cast(net.dtype()), ..batch };
        let output = self.task.step(model, batch, context)?;
        let declared = self.task.metrics();
        let mut names: Vec<&str> = declared.iter().map(|metric| metric.name.as_str()).collect();
        let mut measured: Vec<&str> = output.ratios.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        measured.sort_unstable();
        if names != measured {
            let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Error::spec(format!(
                "task `{}` declares the metrics {}, and its step measures {}",
                self.name,
                list(names),
                list(measured),
            )));
        }
        Ok(output)
    }
}
