//! Each layer of `burn::nn` by itself, between two linear layers: it trains alike on one rank and on two (unless it has statistics of a batch),
//! each of its parameters is trained, and a run that was stopped and resumed ends in the same bits as an uninterrupted one.

mod layers;

use super::testing::{TestRun, close};
use crate::registry::Registry;
use base::error::ErrorKind;
use burn::nn::activation::RReluConfig;
use burn::nn::{DropoutConfig, GaussianNoiseConfig};
use burn::tensor::{Device, Tensor};
use checkpoint::TensorMap;
use ddp::device::drawn;
use layers::Between;
use train::training::TrainingEnd;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Config {
    layer: String,
}

fn run() -> TestRun {
    let registry = Registry::standard()
        .model("layers", |config: &Config, _, device| Between::new(&config.layer, device));
    TestRun::with(
        registry,
        "name = \"layers\"\nseed = 3\nepochs = 2\nbatch_size = 8\n[model]\nname = \"layers\"\n\
         [dataset]\nname = \"random\"\nsamples = 40\nfeatures = 16\nval_split = 0.2\nworkers = 0\n\
         [optimizer]\nname = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n[metrics]\nlog_every = 1\n",
    )
}

/// Trains the layer `name`. `idle`: its parameters whose gradient is zero by its definition.
fn trains_exactly(name: &str, idle: &[&str]) {
    let layer = format!("model.layer={name}");
    let sets = |more: &'static str| [layer.as_str(), more];
    let [start, one, two, parts] = [(); 4].map(|()| run());
    start.train(1, &[&layer, "optimizer.lr=0", "train.max_steps=1"]).unwrap();
    assert_eq!(one.train(1, &sets("batch_size=8")).unwrap(), TrainingEnd::Done, "{name}");
    assert_eq!(two.train(2, &sets("batch_size=4")).unwrap(), TrainingEnd::Done, "{name}");
    parts.in_parts(2, &sets("batch_size=4"), &[3, 3]);
    parts.assert_same(&two);

    let [start, one_rank, two_ranks] = [&start, &one, &two].map(|run| run.loaded().model);
    let alike = name != "batch-norm";
    if alike {
        assert!(close(&one.measured("loss"), &two.measured("loss")), "{name}");
    }
    let mut trained = 0;
    for tensor in one_rank.iter() {
        let values = |of: &TensorMap| of.get(&tensor.name).unwrap().to_f32_vec();
        let (a, b) = (tensor.to_f32_vec(), values(&two_ranks));
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(!alike || worst < 1e-5, "{name}: {} differs by {worst}", tensor.name);
        let is_idle = idle.iter().any(|idle| tensor.name.ends_with(idle));
        assert!(is_idle || a != values(&start), "{name}: {} is not trained", tensor.name);
        trained += usize::from(tensor.name.starts_with("layer."));
    }
    assert!(trained > 0 || ["activations", "shapes", "values"].contains(&name), "{name} has no tensors");
}

#[test]
fn convolutions() {
    for name in ["conv1d", "conv2d", "conv3d", "deform-conv2d"] {
        trains_exactly(name, &[]);
    }
    for name in ["conv-transpose1d", "conv-transpose2d", "conv-transpose3d"] {
        trains_exactly(name, &[]);
    }
}

#[test]
fn norms() {
    for name in ["batch-norm", "group-norm", "instance-norm", "layer-norm", "rms-norm"] {
        trains_exactly(name, &[]);
    }
}

#[test]
fn recurrent_layers() {
    for name in ["rnn", "bi-rnn", "gru", "bi-gru", "lstm", "bi-lstm"] {
        trains_exactly(name, &[]);
    }
}

/// A key's bias changes all scores of a row by the same.
#[test]
fn attention() {
    for name in ["attention", "cross-attention", "encoder", "decoder", "feed-forward"] {
        trains_exactly(name, &["key.bias"]);
    }
}

#[test]
fn activations_tables_and_what_has_no_parameters() {
    for name in ["embedding", "linear", "prelu", "swiglu", "activations", "shapes", "values"] {
        trains_exactly(name, &[]);
    }
}

/// Burn's position-wise layers, and so its transformers, do not count their activation as a part of the module.
#[test]
fn parameters_that_are_no_part_of_the_module_are_refused() {
    let error = run().train(1, &["model.layer=swiglu-inside"]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Spec);
    assert!(error.message.contains("parameters that are not part of its module"), "{error}");
}

/// A training step seeds the stream by run, rank and micro-batch.
#[test]
fn layers_that_draw_use_the_stream_that_a_step_seeds() {
    let device = Device::flex().autodiff();
    let x = Tensor::<2>::ones([4, 9], &device).neg();
    let (dropout, noise, leaky) =
        (DropoutConfig::new(0.5).init(), GaussianNoiseConfig::new(0.5).init(), RReluConfig::new().init());
    let passes: [&dyn Fn() -> Tensor<2>; 3] =
        [&|| dropout.forward(x.clone()), &|| noise.forward(x.clone()), &|| leaky.forward(x.clone())];
    for pass in passes {
        let values = |seed| drawn(&device, seed, || pass().into_data().try_into_vec::<f32>().unwrap());
        assert_eq!(values(1), values(1));
        assert_ne!(values(1), values(2));
    }
}
