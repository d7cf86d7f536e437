//! Models written for Burn's `Learner`, as tasks.
//!
//! A training step is the model's own `TrainStep::step`, whatever it computes. Burn's trait leaves the backward pass to
//! it (`TrainOutput::new(self, loss.backward(), item)`). The model that it is called on has our taps, so its gradients
//! go to the reducer during that pass, as in every other one, and the trainer runs none itself. The gradients of
//! `TrainOutput` are empty then and are dropped. `InferenceStep::step` would give a loss without a backward pass, but it
//! may compute another one than training (without label smoothing, say), and only evaluations use it.

use super::erased::{converted, measures, model_of, sorted_names};
use super::{AnyTask, Batch, MetricFacts, StepContext, StepOutput, TaskModel};
use crate::models::AnyNet;
use base::error::{Error, Result};
use burn::tensor::Tensor;
use burn_train::{
    ClassificationOutput, InferenceStep, MultiLabelClassificationOutput, RegressionOutput, SequenceOutput,
    TrainStep,
};
use schemars::JsonSchema;
use serde::Deserialize;
use spec::Fields;
use std::marker::PhantomData;
use std::sync::Arc;

/// The output of a `TrainStep` or `InferenceStep`.
pub trait LearnerOutput {
    /// The metrics that [`LearnerOutput::measure`] measures.
    fn metrics() -> Vec<MetricFacts> {
        Vec::new()
    }

    /// The loss, what it is the mean over, and the terms of the metrics.
    fn measure(self) -> StepOutput;
}

/// A model that Burn's `Learner` trains: its inputs are made of a [`Batch`], and its outputs are [`LearnerOutput`]s with the
/// same metrics.
pub trait LearnerModel:
    TaskModel
    + TrainStep<Input: TryFrom<Batch, Error: Into<Error>>, Output: LearnerOutput>
    + InferenceStep<Input: TryFrom<Batch, Error: Into<Error>>, Output: LearnerOutput>
    + 'static
{
}

impl<M> LearnerModel for M where
    M: TaskModel
        + TrainStep<Input: TryFrom<Batch, Error: Into<Error>>, Output: LearnerOutput>
        + InferenceStep<Input: TryFrom<Batch, Error: Into<Error>>, Output: LearnerOutput>
        + 'static
{
}

impl LearnerOutput for ClassificationOutput {
    fn metrics() -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("accuracy")]
    }

    fn measure(self) -> StepOutput {
        let rows = self.output.dims()[0];
        let found = self.output.argmax(1).reshape([rows]);
        let correct: Tensor<1> = found.equal(self.targets).int().sum().float();
        StepOutput::new(self.loss, rows).metric("accuracy", correct, rows)
    }
}

impl LearnerOutput for MultiLabelClassificationOutput {
    fn measure(self) -> StepOutput {
        StepOutput::new(self.loss, self.output.dims()[0])
    }
}

impl LearnerOutput for RegressionOutput {
    fn measure(self) -> StepOutput {
        StepOutput::new(self.loss, self.output.dims()[0])
    }
}

impl LearnerOutput for SequenceOutput {
    fn measure(self) -> StepOutput {
        StepOutput::new(self.loss, self.targets.dims()[0])
    }
}

/// Has no keys.
#[derive(Deserialize, JsonSchema)]
struct NoKeys {}

/// Reads the `[task]` table of `M`, as [`super::task`] does.
pub fn learner<M: LearnerModel>(name: &str, fields: &mut Fields<'_>) -> Option<Arc<dyn AnyTask>> {
    let NoKeys {} = fields.parse()?;
    let names = sorted_names(&<M as TrainStep>::Output::metrics());
    Some(Arc::new(Learner::<M> { name: name.to_owned(), names, model: PhantomData }))
}

/// Trains a model of this type.
struct Learner<M> {
    name: String,
    /// Of the metrics, sorted.
    names: Vec<String>,
    model: PhantomData<fn() -> M>,
}

impl<M: LearnerModel> AnyTask for Learner<M> {
    fn metrics(&self) -> Vec<MetricFacts> {
        <M as TrainStep>::Output::metrics()
    }

    fn step(&self, net: &AnyNet, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let model: &M = model_of(&self.name, net)?;
        let output = if context.is_training() {
            TrainStep::step(model, converted(batch, net)?).item.measure()
        } else {
            InferenceStep::step(model, converted(batch, net)?).measure()
        };
        measures(&self.name, &output, &self.names)?;
        Ok(output)
    }

    fn runs_backward(&self) -> bool {
        true
    }
}
