//! A model written for Burn's `Learner`: its batches, `TrainStep` and `InferenceStep` are as they were. Run it as ddp-run itself:
//! `cargo run --release --features learner --example learner -- examples/learner/learner.toml`

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig, Relu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use serde::Deserialize;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[derive(Module, Debug)]
struct Rings {
    inner: Linear,
    outer: Linear,
    activation: Relu,
}

impl Rings {
    fn new(hidden: usize, device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(2, hidden).init(device),
            outer: LinearConfig::new(hidden, 2).init(device),
            activation: Relu::new(),
        }
    }

    fn forward_classification(&self, batch: PointBatch, smoothing: Option<f32>) -> ClassificationOutput {
        let output = self.outer.forward(self.activation.forward(self.inner.forward(batch.points)));
        let loss = CrossEntropyLossConfig::new().with_smoothing(smoothing).init(&output.device());
        let loss = loss.forward(output.clone(), batch.rings.clone());
        ClassificationOutput::new(loss, output, batch.rings)
    }
}

impl TrainStep for Rings {
    type Input = PointBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: PointBatch) -> TrainOutput<ClassificationOutput> {
        let item = self.forward_classification(batch, Some(0.1));
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Rings {
    type Input = PointBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: PointBatch) -> ClassificationOutput {
        self.forward_classification(batch, None)
    }
}

#[derive(Clone, Debug)]
struct PointBatch {
    points: Tensor<2>,
    rings: Tensor<1, Int>,
}

/// A point of the plane and the ring that it lies in.
#[derive(Clone, Debug)]
struct Point {
    at: [f32; 2],
    ring: i32,
}

struct PointBatcher;

impl Batcher<Point, PointBatch> for PointBatcher {
    fn batch(&self, items: Vec<Point>, device: &Device) -> PointBatch {
        let points: Vec<f32> = items.iter().flat_map(|p| p.at).collect();
        let rings: Vec<i32> = items.iter().map(|p| p.ring).collect();
        PointBatch {
            points: Tensor::from_data(TensorData::new(points, [items.len(), 2]), device),
            rings: Tensor::from_data(TensorData::new(rings, [items.len()]), device),
        }
    }
}

// What ddp-run adds: the model is a network, and batches are converted there and back.

impl Net for Rings {}

impl From<PointBatch> for BurnBatch {
    fn from(batch: PointBatch) -> Self {
        BurnBatch::new(batch.points.into_data(), batch.rings.into_data())
    }
}

impl From<Batch> for PointBatch {
    fn from(batch: Batch) -> Self {
        Self { points: batch.input.rows(), rings: batch.target.flat_index() }
    }
}

/// The `[model]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct RingsConfig {
    /// Width of the hidden layer.
    #[schemars(range(min = 1))]
    hidden: usize,
}

/// The `[dataset]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct PointsConfig {
    /// Training points; there is a quarter as many for validation.
    #[schemars(range(min = 4))]
    points: usize,
}

/// Points of a square (by Kronecker's sequence), and whether they lie in the ring around its middle.
fn points(from: usize, count: usize) -> InMemDataset<Point> {
    let point = |i: usize| {
        let at = |step: f64| ((i as f64 * step).fract() * 2.0 - 1.0) as f32;
        let (x, y) = (at(0.754_877_666_2), at(0.569_840_290_9));
        Point { at: [x, y], ring: i32::from((0.4..0.9).contains(&x.hypot(y))) }
    };
    InMemDataset::new((from..from + count).map(point).collect())
}

fn main() {
    Registry::standard()
        .model("rings", |c: &RingsConfig, _, device: &Device| Rings::new(c.hidden, device))
        .burn_dataset("points", |c: &PointsConfig| {
            BurnData::new(points(0, c.points), PointBatcher, 2)?
                .val(points(c.points, c.points / 4), PointBatcher)
        })
        .learner::<Rings>("rings")
        .run()
}
