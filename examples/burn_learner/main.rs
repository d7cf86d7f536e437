//! Burn's `Learner` on several processes, with its optimizers, metrics and checkpoints; gradients are averaged by `ddp`.
//!
//! ```text
//! cargo build --release --features learner --example burn_learner
//! ddp-run launch --nproc-per-node 2 -- target/release/examples/burn_learner FOLDER
//! ```
//!
//! Each rank writes its metrics and its model to FOLDER/rank-N.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn_train::metric::{AccuracyMetric, LossMetric};
use burn_train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep,
    TrainingStrategy,
};
use collectives::Options;
use ddp::{DdpOptions, DdpStrategy, DistributedSampler, Order};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// Of all ranks together.
const BATCH_SIZE: usize = 32;
const EPOCHS: usize = 8;
const LEARNING_RATE: f64 = 0.02;

#[derive(Module, Debug)]
struct Rings {
    inner: Linear,
    outer: Linear,
}

impl Rings {
    fn new(device: &Device) -> Self {
        Self { inner: LinearConfig::new(2, 32).init(device), outer: LinearConfig::new(32, 2).init(device) }
    }

    fn forward(&self, batch: PointBatch) -> ClassificationOutput {
        let output = self.outer.forward(self.inner.forward(batch.points).tanh());
        let loss = CrossEntropyLossConfig::new().init(&output.device());
        let loss = loss.forward(output.clone(), batch.rings.clone());
        ClassificationOutput::new(loss, output, batch.rings)
    }
}

impl TrainStep for Rings {
    type Input = PointBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: PointBatch) -> TrainOutput<ClassificationOutput> {
        let item = self.forward(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Rings {
    type Input = PointBatch;
    type Output = ClassificationOutput;

    fn step(&self, batch: PointBatch) -> ClassificationOutput {
        self.forward(batch)
    }
}

/// A point of the plane, and whether it lies in the ring around the middle.
#[derive(Clone, Debug)]
struct Point {
    at: [f32; 2],
    ring: i32,
}

/// By Kronecker's sequence.
fn point(i: usize) -> Point {
    let at = |step: f64| ((i as f64 * step).fract() * 2.0 - 1.0) as f32;
    let (x, y) = (at(0.754_877_666_2), at(0.569_840_290_9));
    Point { at: [x, y], ring: i32::from((0.4..0.9).contains(&x.hypot(y))) }
}

#[derive(Clone, Debug)]
struct PointBatch {
    points: Tensor<2>,
    rings: Tensor<1, Int>,
}

struct PointBatcher;

impl Batcher<Point, PointBatch> for PointBatcher {
    fn batch(&self, items: Vec<Point>, device: &Device) -> PointBatch {
        let points: Vec<f32> = items.iter().flat_map(|point| point.at).collect();
        let rings: Vec<i32> = items.iter().map(|point| point.ring).collect();
        PointBatch {
            points: Tensor::from_data(TensorData::new(points, [items.len(), 2]), device),
            rings: Tensor::from_data(TensorData::new(rings, [items.len()]), device),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(std::env::args().nth(1).ok_or("usage: burn_learner FOLDER")?);
    let group = collectives::init(Options::from_env()?)?;
    let (rank, world_size) = (group.rank(), group.world_size());
    let folder = folder.join(format!("rank-{rank}"));
    let device = Device::flex().autodiff();
    device.seed(3);

    let own = DistributedSampler::new(1024, world_size, rank, 0).with_shuffle(false).epoch(0);
    let train: Vec<Point> = (0..own.len()).map(|position| point(own.get(position) as usize)).collect();
    let valid: Vec<Point> = (1024..1280).map(point).collect();
    let train = DataLoaderBuilder::new(PointBatcher)
        .batch_size(BATCH_SIZE / world_size)
        .build(InMemDataset::new(train));
    let valid = DataLoaderBuilder::new(PointBatcher).batch_size(256).build(InMemDataset::new(valid));

    let strategy = DdpStrategy::new(group, DdpOptions::default());
    let result = SupervisedTraining::new(&folder, train, valid)
        .metrics((AccuracyMetric::new(), LossMetric::new()))
        .with_training_strategy(TrainingStrategy::Custom(Arc::new(strategy)))
        .num_epochs(EPOCHS)
        .launch(Learner::new(Rings::new(&device), AdamWConfig::new().init(), LEARNING_RATE));
    if let Some(error) = result.error {
        return Err(error.to_string().into());
    }
    if let Some(stop) = result.interrupted {
        return Err(stop.reason.unwrap_or_else(|| "the training was stopped".to_owned()).into());
    }
    result.model.save_file(folder.join("model.bpk"))?;
    Ok(())
}
