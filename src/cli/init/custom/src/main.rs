//! ddp-run with a user-defined model and a user-defined data set. All of its commands are there:
//! `cargo run -- job.toml` trains, `cargo run -- --help` lists the others. docs/extending.md of
//! ddp-run tells what else can be registered: tasks, losses, metrics, transforms, optimizers, ….

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::tanh};
use ddp_run::prelude::*;
use ddp_run::schemars::JsonSchema;
use serde::Deserialize;

/// Optional: keeps freed memory from one step to the next.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() {
    registry().run()
}

/// The names that a spec may use: ddp-run's, and those of this file.
fn registry() -> Registry {
    Registry::standard()
        .model("mynet", |config: &MyNetConfig, _, device: &Device| {
            MyNet::new(config, device)
        })
        .burn_dataset("spirals", |config: &SpiralsConfig| {
            let points = |count, shift| InMemDataset::new(spirals(count, shift));
            BurnData::new(points(config.samples, 0.0), PointBatcher, 2)?
                .val(points(config.samples / 4, 0.5), PointBatcher)
        })
}

/// The keys of `[model]`. A key that is unknown, missing or out of its range is an error of the spec.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct MyNetConfig {
    /// Width of the hidden layer.
    #[schemars(range(min = 1))]
    hidden: usize,
}

#[derive(Module, Debug)]
struct MyNet {
    inner: Linear,
    outer: Linear,
}

impl MyNet {
    fn new(config: &MyNetConfig, device: &Device) -> Self {
        Self {
            inner: LinearConfig::new(2, config.hidden).init(device),
            outer: LinearConfig::new(config.hidden, 2).init(device),
        }
    }
}

impl Net for MyNet {
    /// `[batch, 2]` points to `[batch, 2]` scores, one per class.
    fn forward(&self, input: Input) -> Tensor<2> {
        self.outer.forward(tanh(self.inner.forward(input.rows())))
    }
}

/// The keys of `[dataset]`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct SpiralsConfig {
    /// Training points, of both spirals together.
    #[schemars(range(min = 4))]
    samples: usize,
}

/// A point and the spiral that it lies on.
#[derive(Clone, Debug)]
struct Point {
    at: [f32; 2],
    arm: i64,
}

/// Two interleaved spirals of half a turn. `shift` keeps validation apart from training.
fn spirals(count: usize, shift: f32) -> Vec<Point> {
    let point = |i: usize| {
        let arm = (i % 2) as i64;
        let t = ((i * 7919 % 1000) as f32 + shift) / 1000.0;
        let angle = 4.0 * t + std::f32::consts::PI * arm as f32;
        Point {
            at: [t * angle.cos(), t * angle.sin()],
            arm,
        }
    };
    (0..count).map(point).collect()
}

/// A Burn batcher as it would be written for Burn's own learner.
struct PointBatcher;

/// `[batch, 2]` points and the `[batch]` classes that they belong to.
struct PointBatch {
    points: Tensor<2>,
    arms: Tensor<1, Int>,
}

impl Batcher<Point, PointBatch> for PointBatcher {
    fn batch(&self, items: Vec<Point>, device: &Device) -> PointBatch {
        let values: Vec<f32> = items.iter().flat_map(|p| p.at).collect();
        let arms: Vec<i64> = items.iter().map(|p| p.arm).collect();
        PointBatch {
            points: Tensor::from_data(TensorData::new(values, [items.len(), 2]), device),
            arms: Tensor::from_data(TensorData::new(arms, [items.len()]), device),
        }
    }
}

/// What ddp-run takes from a batch: inputs and targets.
impl From<PointBatch> for BurnBatch {
    fn from(batch: PointBatch) -> Self {
        BurnBatch::new(batch.points.into_data(), batch.arms.into_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_scores_each_point() {
        let device = Device::flex();
        let model = MyNet::new(&MyNetConfig { hidden: 8 }, &device);
        let batch = PointBatcher.batch(spirals(6, 0.0), &device);
        assert_eq!(batch.arms.dims(), [6]);
        let scores = model.forward(Input::from_tensor(batch.points));
        assert_eq!(scores.dims(), [6, 2]);
    }

    #[test]
    fn no_point_is_in_training_and_validation() {
        let train = spirals(2000, 0.0);
        let seen = |point: &Point| train.iter().any(|other| other.at == point.at);
        assert!(!spirals(500, 0.5).iter().any(seen));
    }
}
