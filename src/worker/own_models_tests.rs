//! A run of a user-defined module with every kind of field that Burn's modules may have: the evaluated state is the saved one,
//! and a run that was stopped and resumed ends in the same bits as an uninterrupted one.

use super::testing::trained;
use super::*;
use crate::checkpoint::TensorMap;
use crate::comm::SoloGroup;
use crate::models::{Input, Net};
use crate::plan::WorldRequest;
use crate::registry::Registry;
use crate::spec::JobTree;
use burn::module::{Module, Param, RunningState};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::{Device, Tensor, TensorData, activation::tanh};

const WIDTH: usize = 5;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {}

/// A module whose training reads its running state.
#[derive(Module, Debug)]
struct Centred {
    seen: RunningState<Tensor<1>>,
}

impl Centred {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let seen = self.seen.value_sync();
        if x.is_autodiff() {
            let mean = x.clone().detach().mean_dim(0).reshape([WIDTH]);
            self.seen.update(seen.clone() * 0.5 + mean * 0.5);
        }
        x - seen.reshape([1, WIDTH])
    }
}

#[derive(Module, Debug)]
struct Normed {
    fc: Linear,
    norm: BatchNorm,
}

#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "as a user writes it")]
enum Layer {
    Normed(Normed),
    Plain(Linear),
}

#[derive(Module, Debug)]
struct Zoo {
    layers: Vec<Layer>,
    centred: Centred,
    tied: Linear,
    again: Linear,
    frozen: Linear,
    absent: Option<Linear>,
    last: Option<Normed>,
    running_scale: Param<Tensor<1>>,
    fixed: Tensor<1>,
    head: Linear,
}

/// Ranks are threads here and share one random stream, so initial values are derived from the layer's dimensions; the
/// layer stays lazy.
fn linear(inputs: usize, outputs: usize, device: &Device) -> Linear {
    let layer = LinearConfig::new(inputs, outputs).with_bias(false).init(device);
    let weight = layer.weight.clone().init_mapper(|drawn| {
        let shape = drawn.shape();
        let values: Vec<f32> =
            (0..shape.num_elements()).map(|i| 0.6 * ((i * i + 3 * i) as f32).sin()).collect();
        Tensor::from_data(TensorData::new(values, shape), &drawn.device())
    });
    Linear { weight, ..layer }
}

fn normed(inputs: usize, device: &Device) -> Normed {
    Normed { fc: linear(inputs, WIDTH, device), norm: BatchNormConfig::new(WIDTH).init(device) }
}

impl Zoo {
    fn new(features: usize, device: &Device) -> Self {
        let tied = linear(WIDTH, WIDTH, device);
        Self {
            layers: vec![Layer::Normed(normed(features, device)), Layer::Plain(linear(WIDTH, WIDTH, device))],
            centred: Centred { seen: RunningState::new(Tensor::zeros([WIDTH], device)) },
            again: tied.clone(),
            tied,
            frozen: linear(WIDTH, WIDTH, device).no_grad(),
            absent: None,
            last: Some(normed(WIDTH, device)),
            running_scale: Param::from_tensor(Tensor::ones([1], device)),
            fixed: Tensor::from_floats([0.5, -0.5, 0.25, -0.25, 1.0], device),
            head: linear(WIDTH, 1, device),
        }
    }
}

impl Normed {
    fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        self.norm.forward(self.fc.forward(x))
    }
}

impl Net for Zoo {
    fn forward(&self, input: Input) -> Tensor<2> {
        let mut x = input.rows();
        for layer in &self.layers {
            x = match layer {
                Layer::Normed(layer) => tanh(layer.forward(x)),
                Layer::Plain(layer) => layer.forward(x),
            };
        }
        x = self.again.forward(tanh(self.tied.forward(self.centred.forward(x))));
        x = self.frozen.forward(x) + self.fixed.clone().reshape([1, WIDTH]);
        x = self.last.iter().fold(x, |x, last| last.forward(x));
        self.head.forward(x * self.running_scale.val().reshape([1, 1]))
    }
}

fn plan(buffers: &str) -> Plan {
    let spec = format!(
        "name = \"zoo\"\nbatch_size = 6\nepochs = 3\n[model]\nname = \"zoo\"\n[dataset]\nname = \"random\"\nsamples = 100\n\
         features = 4\nval_split = 0.2\n[train]\nbuffers = \"{buffers}\"\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n\
         weight_decay = 0.1\n[metrics]\nlog_every = 1\n"
    );
    let registry = Registry::standard().model("zoo", |_: &Config, _, device| Zoo::new(4, device));
    Plan::resolve(&JobTree::parse("x.toml", &spec, &[]).unwrap(), &registry, WorldRequest::of(2)).unwrap()
}

fn model(out_dir: &Path) -> TensorMap {
    load_any(out_dir).unwrap().model
}

/// The losses of the epochs.
fn losses(out_dir: &Path) -> Vec<(f64, f64)> {
    let text = std::fs::read_to_string(out_dir.join("metrics.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let loss = |event: &serde_json::Value, split: &str| event[split]["loss"].as_f64().unwrap();
    events.filter(|e| e["event"] == "epoch").map(|e| (loss(&e, "train"), loss(&e, "val"))).collect()
}

fn same(a: &TensorMap, b: &TensorMap) -> bool {
    a.len() == b.len() && a.iter().all(|t| b.get(&t.name).is_some_and(|u| u.bytes == t.bytes))
}

#[test]
fn every_kind_of_field_is_evaluated_saved_and_resumed_as_it_is() {
    let mut models = Vec::new();
    for buffers in ["broadcast", "mean"] {
        let (plan, dir) = (plan(buffers), tempfile::tempdir().unwrap());
        let (whole, parts) = (dir.path().join("whole"), dir.path().join("parts"));
        assert_eq!(trained(&plan, &whole, u64::MAX).unwrap(), Ended::Done);
        let saved = model(&whole);
        let evaluated =
            evaluate(&plan, &whole, Split::Val, true, ComputeDevice::Cpu, Arc::new(SoloGroup::new()))
                .unwrap();
        let (in_training, alone) = (losses(&whole)[2].1, evaluated["loss"].as_f64().unwrap());
        assert!((in_training / alone - 1.0).abs() < 1e-6, "{buffers}: {in_training} and {alone}");
        // In mid-epoch, twice.
        for stop_at in [4, 6] {
            assert_eq!(trained(&plan, &parts, stop_at).unwrap(), Ended::Stopped);
        }
        assert_eq!(trained(&plan, &parts, u64::MAX).unwrap(), Ended::Done);
        assert!(same(&model(&parts), &saved), "{buffers}: another model");
        assert_eq!(losses(&parts), losses(&whole), "{buffers}");
        // Shared parameters stay shared, frozen ones unchanged, and a parameter that is only named like a buffer is trained.
        let values = |name: &str| saved.get(name).unwrap().to_f32_vec();
        assert_eq!(values("tied.weight"), values("again.weight"));
        assert_ne!(values("tied.weight"), values("frozen.weight"));
        let fresh: Vec<f32> =
            linear(WIDTH, WIDTH, &Device::flex()).weight.val().into_data().try_into_vec().unwrap();
        let entry = |r: usize, c: usize| fresh[c * WIDTH + r];
        let expected: Vec<f32> = (0..WIDTH * WIDTH).map(|i| entry(i / WIDTH, i % WIDTH)).collect();
        assert_eq!(values("frozen.weight"), expected);
        assert_ne!(values("running_scale"), [1.0]);
        assert_ne!(values("centred.seen"), [0.0; WIDTH]);
        models.push(saved);
    }
    let statistics = |model: &TensorMap| model.get("last.norm.running_mean").unwrap().to_f32_vec();
    assert_ne!(statistics(&models[0]), statistics(&models[1]), "`buffers` makes no difference");
}
