//! A task of one's own: two towers learn which views belong to the same object (CLIP's symmetric loss; Radford et al., 2021), with the
//! samples of all ranks as one batch. Run it as ddp-run itself:
//! `cargo run --release --example contrastive -- examples/contrastive/contrastive.toml`

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::log_softmax, activation::tanh};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use ddp_run::task::MetricFacts;
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// A hidden layer and an embedding.
#[derive(Module, Debug)]
struct Tower {
    inner: Linear,
    outer: Linear,
}

impl Tower {
    fn new(inputs: usize, c: &TowersConfig, device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(inputs, c.hidden).init(device),
            outer: LinearConfig::new(c.hidden, c.embedding).init(device),
        }
    }

    /// Embeddings of length 1, `[batch, embedding]`.
    fn embed(&self, views: Tensor<2>) -> Tensor<2> {
        let x = self.outer.forward(tanh(self.inner.forward(views)));
        let length = (x.clone() * x.clone()).sum_dim(1).sqrt();
        x / (length + 1e-6)
    }
}

/// The model has no forward pass that returns rows: the task calls its towers.
#[derive(Module, Debug)]
struct Towers {
    first: Tower,
    second: Tower,
}

impl Net for Towers {}

/// The `[model]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct TowersConfig {
    /// Width of the hidden layers.
    #[schemars(range(min = 1))]
    hidden: usize,
    /// Size of the embeddings.
    #[schemars(range(min = 1))]
    embedding: usize,
}

/// Its fields are the keys of `[task]`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Contrastive {
    /// Divides similarities.
    #[schemars(range(min = 0.01))]
    temperature: f64,
}

impl Task for Contrastive {
    type Model = Towers;
    type Batch = Batch;

    fn metrics(&self) -> Vec<MetricFacts> {
        vec![MetricFacts::larger_is_better("found")]
    }

    fn step(&self, model: &Towers, batch: Batch, context: &StepContext<'_>) -> Result<StepOutput> {
        let own = batch.input.shape()[0];
        let other_view = batch.target.cast(batch.input.dtype());
        let first = context.all_gather(model.first.embed(batch.input.rows()))?;
        let second = context.all_gather(model.second.embed(other_view.rows()))?;
        let count = first.dims()[0];
        let scores = first.matmul(second.transpose()) / self.temperature;
        let pairs = Tensor::<1, Int>::arange(0..count as i64, &scores.device()).reshape([count, 1]);
        let towards = |scores: Tensor<2>| log_softmax(scores, 1).gather(1, pairs.clone()).mean().neg();
        let loss = (towards(scores.clone()) + towards(scores.clone().transpose())) * 0.5;
        let found = scores.inner().argmax(1).equal(pairs.inner()).int().sum().float();
        Ok(StepOutput::new(loss, own).add_gradients().metric("found", found, count))
    }
}

/// Two views of one object.
#[derive(Clone, Debug)]
struct Views {
    first: [f32; 3],
    second: [f32; 2],
}

struct ViewsBatcher;

struct ViewsBatch {
    first: Tensor<2>,
    second: Tensor<2>,
}

impl Batcher<Views, ViewsBatch> for ViewsBatcher {
    fn batch(&self, items: Vec<Views>, device: &Device) -> ViewsBatch {
        let first: Vec<f32> = items.iter().flat_map(|v| v.first).collect();
        let second: Vec<f32> = items.iter().flat_map(|v| v.second).collect();
        ViewsBatch {
            first: Tensor::from_data(TensorData::new(first, [items.len(), 3]), device),
            second: Tensor::from_data(TensorData::new(second, [items.len(), 2]), device),
        }
    }
}

impl From<ViewsBatch> for BurnBatch {
    fn from(batch: ViewsBatch) -> Self {
        BurnBatch::new(batch.first.into_data(), batch.second.into_data())
    }
}

/// The `[dataset]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct ViewsConfig {
    /// Training objects; there is a quarter as many for validation.
    #[schemars(range(min = 4))]
    objects: usize,
}

/// Objects are points of a square (by Kronecker's sequence); a view is a function of the point.
fn views(from: usize, count: usize) -> InMemDataset<Views> {
    let view = |i: usize| {
        let at = |step: f64| ((i as f64 * step).fract() * 2.0 - 1.0) as f32;
        let (x, y) = (at(0.754_877_666_2), at(0.569_840_290_9));
        Views { first: [x, y, x * y], second: [(2.0 * x + y).sin(), (x - 2.0 * y).cos()] }
    };
    InMemDataset::new((from..from + count).map(view).collect())
}

fn main() {
    Registry::standard()
        .model("towers", |c: &TowersConfig, _, device: &Device| Towers {
            first: Tower::new(3, c, device),
            second: Tower::new(2, c, device),
        })
        .burn_dataset("views", |c: &ViewsConfig| {
            BurnData::new(views(0, c.objects), ViewsBatcher, 0)?
                .val(views(c.objects, c.objects / 4), ViewsBatcher)
        })
        .task::<Contrastive>("contrastive")
        .run()
}
