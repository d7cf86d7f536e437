//! A task, a loss, metrics, a transform and a model as a user's crate has them.

use crate::registry::Registry;
use crate::worker::testing::fixed;
use base::error::Result;
use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Int, Tensor, activation::log_softmax};
use data::{FieldMut, Sample, Transform};
use schemars::JsonSchema;
use serde::Deserialize;
use train::models::{AnyNet, Net, Target};
use train::tasks::{Batch, Loss, Metric, MetricFacts, StepContext, StepOutput, Task, Term};

/// `-log softmax` by operations of Burn: cross-entropy.
#[derive(Deserialize, JsonSchema)]
struct OwnLoss {
    /// Factor of the loss.
    #[schemars(range(min = 0.0))]
    factor: f64,
}

impl Loss for OwnLoss {
    fn of(&self, outputs: Tensor<2>, target: Target) -> Tensor<1> {
        let labels = target.flat_index();
        let rows = labels.dims()[0];
        log_softmax(outputs, 1).gather(1, labels.reshape([rows, 1])).mean().neg() * self.factor
    }
}

/// The number of rows whose largest output is the label's.
#[derive(Deserialize, JsonSchema)]
struct Hits {}

impl Metric for Hits {
    fn measure(&self, outputs: Tensor<2>, target: Target) -> [Term; 2] {
        let rows = outputs.dims()[0];
        let found = outputs.argmax(1).reshape([rows]).equal(target.flat_index());
        [found.int().sum().float().into(), rows.into()]
    }
}

/// Two towers whose outputs for the two halves of a sample shall be close.
#[derive(Module, Debug)]
struct Towers {
    left: Linear,
    right: Linear,
}

impl Net for Towers {}

/// InfoNCE over the samples of all ranks.
#[derive(Deserialize, JsonSchema)]
struct Contrastive {
    #[schemars(range(min = 0.01))]
    temperature: f64,
}

impl Task for Contrastive {
    type Model = Towers;
    type Batch = Batch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("pairs"), MetricFacts::smaller_is_better("distance")]
    }

    fn step(&self, model: &Towers, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let own = model.left.forward(batch.input.rows());
        let other = model.right.forward(batch.target.rows());
        let count = own.dims()[0];
        let distance = (own.clone() - other.clone()).abs().sum();
        let (own, other) = (context.all_gather(own)?, context.all_gather(other)?);
        let all = own.dims()[0];
        let similar = own.matmul(other.transpose()) / self.temperature;
        let diagonal = Tensor::<1, Int>::arange(0..all as i64, &similar.device()).reshape([all, 1]);
        let loss = log_softmax(similar, 1).gather(1, diagonal).mean().neg();
        Ok(StepOutput::new(loss, count)
            .add_gradients()
            .metric("pairs", count, 1.0)
            .metric("distance", distance, count))
    }
}

/// As the standard one, for every model, with a metric of a standard name.
#[derive(Deserialize, JsonSchema)]
struct Plain {
    /// The loss is not one number.
    #[serde(default)]
    forgets_the_mean: bool,
    /// The name of a metric that is never zero.
    #[serde(default = "accuracy")]
    metric: String,
}

fn accuracy() -> String {
    "accuracy".to_owned()
}

impl Task for Plain {
    type Model = AnyNet;
    type Batch = Batch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better(&self.metric)]
    }

    fn step(&self, model: &AnyNet, batch: Batch, _: &StepContext<'_>) -> Result<StepOutput> {
        let error = model.forward(batch.input) - batch.target.rows();
        let count = error.dims()[0];
        let squares = error.clone() * error;
        let loss = if self.forgets_the_mean { squares.reshape([count]) } else { squares.mean() };
        Ok(StepOutput::new(loss, count).metric(&self.metric, count, 2.0))
    }
}

/// Adds noise to training inputs, and scales targets.
#[derive(Deserialize, JsonSchema)]
struct Noise {
    #[schemars(range(min = 0.0))]
    width: f32,
}

impl Transform for Noise {
    fn apply(&self, mut sample: Sample<'_>) -> Result<()> {
        assert_eq!(sample.shape, [4]);
        if let (true, FieldMut::Float(input)) = (sample.training, sample.input) {
            input.iter_mut().for_each(|x| *x += self.width * sample.random.normal());
        }
        Ok(())
    }
}

pub fn registry() -> Registry {
    Registry::standard()
        .transform::<Noise>("noise")
        .loss::<OwnLoss>("own")
        .metric::<Hits>("hits")
        .task::<Contrastive>("contrastive")
        .task::<Plain>("plain")
        .model("towers", |_: &Empty, _, device| Towers {
            left: fixed(3, 4, device),
            right: fixed(1, 4, device),
        })
}

#[derive(Deserialize, JsonSchema)]
struct Empty {}
