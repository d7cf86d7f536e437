//! A run of a user-defined module with every kind of field that Burn's modules may have: the evaluated state is the saved one,
//! and a run that was stopped and resumed ends in the same bits as an uninterrupted one.

use super::testing::{TestRun, fixed as linear};
use super::{EvaluationScope, RankParts, Split, evaluate};
use crate::registry::Registry;
use base::error::ErrorKind;
use burn::module::{Module, Param, RunningState};
use burn::nn::{BatchNorm, BatchNormConfig, Linear};
use burn::tensor::{Device, Tensor, activation::tanh};
use checkpoint::TensorMap;
use collectives::SoloGroup;
use ddp::device::{ComputeDevice, drawn};
use train::models::{Input, Net};
use train::training::TrainingEnd;

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

fn run(buffers: &str) -> TestRun {
    let spec = format!(
        "name = \"zoo\"\nbatch_size = 6\nepochs = 3\n[model]\nname = \"zoo\"\n[dataset]\nname = \"random\"\nsamples = 100\n\
         features = 4\nval_split = 0.2\n[train]\nbuffers = \"{buffers}\"\n[optimizer]\nname = \"adamw\"\nlr = 0.01\n\
         weight_decay = 0.1\n[metrics]\nlog_every = 1\n"
    );
    let registry = Registry::standard().model("zoo", |_: &Config, _, device| Zoo::new(4, device));
    TestRun::with(registry, &spec)
}

#[test]
fn every_kind_of_field_is_evaluated_saved_and_resumed_as_it_is() {
    let mut models = Vec::new();
    for buffers in ["broadcast", "mean"] {
        let (whole, parts) = (run(buffers), run(buffers));
        assert_eq!(whole.train(2, &[]).unwrap(), TrainingEnd::Done);
        let model = |run: &TestRun| run.loaded().model;
        let saved = model(&whole);
        let (loaded, group) = (whole.loaded(), SoloGroup::default());
        let wanted = EvaluationScope { split: Split::Val, averaged: true, per_class: false };
        let plan = whole.plan(2, &[]);
        let evaluated =
            evaluate(&RankParts::new(&plan), Some(&loaded), wanted, ComputeDevice::Cpu, 0, &group).unwrap();
        let (in_training, alone) = (whole.measured("loss")[2][1], evaluated.json()["loss"].as_f64().unwrap());
        assert!((in_training / alone - 1.0).abs() < 1e-6, "{buffers}: {in_training} and {alone}");
        // In mid-epoch, twice.
        parts.in_parts(2, &[], &[4, 6]);
        assert!(model(&parts) == saved, "{buffers}: another model");
        assert_eq!(parts.measured("loss"), whole.measured("loss"), "{buffers}");
        // Shared parameters stay shared, frozen ones unchanged, and a parameter that is only named like a buffer is trained.
        let values = |name: &str| saved.get(name).unwrap().to_f32_vec();
        assert_eq!(values("tied.weight"), values("again.weight"));
        assert_ne!(values("tied.weight"), values("frozen.weight"));
        let device = Device::flex();
        let fresh = drawn(&device, 1, || linear(WIDTH, WIDTH, &device).weight.val());
        let fresh: Vec<f32> = fresh.into_data().try_into_vec().unwrap();
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

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Sized {
    /// A file with the number of outputs.
    size: std::path::PathBuf,
}

#[derive(Module, Debug)]
struct Sole {
    head: Linear,
}

impl Net for Sole {
    fn forward(&self, input: Input) -> Tensor<2> {
        self.head.forward(input.rows())
    }
}

#[test]
fn a_builder_may_fail_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("size");
    let spec = format!(
        "name = \"sized\"\nbatch_size = 6\n[model]\nname = \"sized\"\nsize = {file:?}\n[dataset]\nname = \"random\"\nsamples = 30\n\
         features = 4\n[optimizer]\nname = \"sgd\"\nlr = 0.01\n"
    );
    let registry = Registry::standard().try_model("sized", |config: &Sized, _, device| {
        let text = std::fs::read_to_string(&config.size)?;
        let size = text
            .parse::<usize>()
            .map_err(|e| base::error::Error::data(format!("no number of outputs: {e}")))?;
        Ok(Sole { head: linear(4, size, device) })
    });
    let run = TestRun::with(registry, &spec);
    for (text, expected) in [
        (None, "cannot build the model: No such file or directory"),
        (Some("one"), "cannot build the model: no number of outputs: invalid digit"),
    ] {
        text.inspect(|text| std::fs::write(&file, text).unwrap());
        let e = run.train(1, &[]).unwrap_err();
        assert_eq!(e.kind, ErrorKind::Spec, "{e}");
        assert!(e.message.contains(expected), "{e}");
    }
    std::fs::write(&file, "1").unwrap();
    assert_eq!(run.train(1, &[]).unwrap(), TrainingEnd::Done);
}
