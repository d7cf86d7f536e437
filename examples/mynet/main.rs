//! ddp-run with a model, a data set, a transform, an optimizer, a schedule, a communication hook and an observer of one's own;
//! docs/extending.md explains it. Run it as ddp-run itself: `cargo run --release --example mynet -- examples/mynet/mynet.toml`
//! (model and data set), and with the other specs of the folder, one for each of the other components.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData, activation::tanh};
use ddp_run::dataset::{FieldMut, Sample};
use ddp_run::hook::{CommError, CommHook, ProcessGroup, ReduceOp};
use ddp_run::observer::EventObserver;
use ddp_run::optimizer::{Optimizer, OptimizerConfig};
use ddp_run::prelude::*;
use ddp_run::schedule::{Curve, ScheduleConfig, Unit};
use ddp_run::schemars::JsonSchema;
use ddp_run::serde_json::Value;
use serde::{Deserialize, Serialize};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// The `[model]` table's own keys.
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

impl Net for MyNet {
    fn forward(&self, input: Input) -> Tensor<2> {
        self.outer.forward(tanh(self.inner.forward(input.rows())))
    }
}

/// The `[dataset]` table's own keys.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct SpiralsConfig {
    /// Of both spirals together.
    #[schemars(range(min = 4))]
    samples: usize,
}

/// A point and the spiral that it lies on.
#[derive(Clone, Debug)]
struct Point {
    at: [f32; 2],
    arm: i64,
}

/// A Burn batcher as it would be written for Burn's own learner.
struct PointBatcher;

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

impl From<PointBatch> for BurnBatch {
    fn from(batch: PointBatch) -> Self {
        BurnBatch::new(batch.points.into_data(), batch.arms.into_data())
    }
}

/// Two interleaved half-turn spirals; `from` keeps training and validation apart.
fn spirals(samples: usize, from: usize) -> InMemDataset<Point> {
    let point = |i: usize| {
        let (arm, t) = ((i % 2) as i64, ((i * 7919 + from) % 1000) as f32 / 1000.0);
        let angle = 4.0 * t + std::f32::consts::PI * arm as f32;
        Point { at: [t * angle.cos(), t * angle.sin()], arm }
    };
    InMemDataset::new((0..samples).map(point).collect())
}

/// Moves training points by normal noise. Its fields are the keys of `[[transform]]`.
#[derive(Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Jitter {
    /// Standard deviation.
    #[schemars(range(min = 0.0))]
    width: f32,
}

impl Transform for Jitter {
    fn apply(&self, mut sample: Sample<'_>) -> Result<()> {
        if let (true, FieldMut::Float(input)) = (sample.training, sample.input) {
            input.iter_mut().for_each(|x| *x += self.width * sample.random.normal());
        }
        Ok(())
    }
}

/// Averages gradients after each rank has limited the norm of its own. Its fields are the keys of `[distributed.hook]`.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Limited {
    /// Largest norm of a rank's gradients in a bucket.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    norm: f32,
}

impl CommHook for Limited {
    fn average(
        &mut self,
        _bucket: usize,
        gradients: &mut [f32],
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError> {
        let norm = gradients.iter().map(|g| g * g).sum::<f32>().sqrt();
        // A gradient that is not finite stays so.
        let factor = (self.norm / norm).min(1.0);
        gradients.iter_mut().for_each(|g| *g *= factor);
        group.all_reduce(gradients.into(), ReduceOp::Mean)
    }
}

/// signSGD (Bernstein et al., 2018): steps of one size. Its fields are the keys of `[optimizer]`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
#[serde(default)]
struct SignSgd {
    /// Base learning rate, which the schedule scales.
    #[schemars(range(min = 0.0))]
    lr: f64,
}

impl Default for SignSgd {
    fn default() -> Self {
        Self { lr: 1e-3 }
    }
}

impl OptimizerConfig for SignSgd {}

impl Optimizer for SignSgd {
    fn slots(&self) -> &'static [&'static str] {
        &[]
    }

    fn update(
        &self,
        _step: u64,
        lr: f64,
        scale: f32,
        _shape: &[usize],
        param: &mut [f32],
        grad: &[f32],
        _state: &mut [&mut [f32]],
    ) {
        for (p, g) in param.iter_mut().zip(grad) {
            let g = g * scale;
            *p -= lr as f32 * if g == 0.0 { 0.0 } else { g.signum() };
        }
    }

    fn update_on_device(
        &self,
        _step: u64,
        lr: f64,
        scale: Tensor<1>,
        _shape: &[usize],
        param: Tensor<1>,
        grad: Tensor<1>,
        _state: &mut [Tensor<1>],
    ) -> Tensor<1> {
        param - (grad * scale).sign() * lr
    }
}

/// Rises and falls in triangles, as PyTorch's `CyclicLR` (Smith, 2017). Its fields are keys of `[scheduler]`.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
#[serde(default)]
struct Triangular {
    /// Factor of the base rate between two triangles; the rate at their tips is the base rate.
    #[schemars(range(min = 0.0, max = 1.0))]
    low: f64,
    /// Length of a rise, and of a fall.
    #[schemars(range(min = 1))]
    half: u64,
}

impl Default for Triangular {
    fn default() -> Self {
        Self { low: 0.1, half: 2000 }
    }
}

impl Curve for Triangular {
    fn lr(&self, base: f64, t: u64, _span: u64) -> f64 {
        let (at, half) = (t % (2 * self.half), self.half as f64);
        let height = 1.0 - (at as f64 - half).abs() / half;
        base * (self.low + (1.0 - self.low) * height)
    }
}

impl ScheduleConfig for Triangular {
    const UNIT: Unit = Unit::Step;
}

/// Posts the end of each epoch, and of the run, to an address. Its fields are the keys of `[[observer]]`.
#[derive(Clone, Deserialize, JsonSchema)]
#[schemars(crate = "ddp_run::schemars")]
struct Webhook {
    /// Where to post: `http://` or `https://`.
    url: String,
}

impl EventObserver for Webhook {
    fn event(&mut self, event: &Value) -> Result<()> {
        if !matches!(event["event"].as_str(), Some("epoch" | "end")) {
            return Ok(());
        }
        let posted = ureq::post(&self.url).content_type("application/json").send(event.to_string());
        posted.map(drop).map_err(|e| Error::data(format!("cannot post to {}: {e}", self.url)))
    }
}

fn main() {
    Registry::standard()
        .model("mynet", |c: &MyNetConfig, _, device: &Device| MyNet {
            inner: LinearConfig::new(2, c.hidden).init(device),
            outer: LinearConfig::new(c.hidden, 2).init(device),
        })
        .burn_dataset("spirals", |c: &SpiralsConfig| {
            BurnData::new(spirals(c.samples, 0), PointBatcher, 2)?
                .val(spirals(c.samples / 4, 500), PointBatcher)
        })
        .transform::<Jitter>("jitter")
        .optimizer::<SignSgd>("sign-sgd")
        .schedule::<Triangular>("triangular")
        .comm_hook_with("limited", Limited::clone)
        .observer::<Webhook>("webhook")
        .run()
}
