//! What happens between a batch and a loss. A [`Task`] gets the model and a batch, and returns the loss and the terms of
//! its metrics. Most specs need none of their own: the standard one compares the model's rows of outputs with the
//! targets by a [`Loss`], and measures accuracies or errors and each [`Metric`] of the spec. A spec may name it by what it
//! is for ([`StandardTask`]).

mod config;
mod erased;
#[cfg(feature = "learner")]
mod learner;
mod loss;
mod metric;
mod output;
mod rows;
mod standard;
mod task;

pub use config::{LossKind, MetricKind, Own, TaskKind, TaskPlan, loss, metric, task};
pub use erased::AnyTask;
#[cfg(feature = "learner")]
pub use learner::{LearnerModel, LearnerOutput, learner};
pub use loss::{Loss, StandardLoss};
pub use metric::{Metric, MetricFacts};
pub use output::{Gradients, Measured, StepOutput, Term};
#[cfg(test)]
pub use rows::mixed_loss;
pub use standard::{StandardTask, standard_kinds};
pub use task::{Batch, Lighter, StepContext, Task, TaskModel};
