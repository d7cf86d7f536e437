//! A run of a model made of layers of `burn::nn`: it trains alike on one rank and on two, and a run that was stopped and
//! resumed ends in the same bits as an uninterrupted one. Burn's dropout draws from a stream that ranks share when they are
//! threads; `examples/segmentation`, whose ranks are processes, has it.

use super::testing::{Run, trained};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use burn::module::{Module, ModuleMapper, Param};
use burn::nn::attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig};
use burn::nn::conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig};
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{
    GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm, LayerNormConfig, Linear,
    LinearConfig, Lstm, LstmConfig, PaddingConfig2d,
};
use burn::tensor::{Device, Tensor, TensorData};
use checkpoint::load_any;
use spec::{JobTree, Override};
use train::models::{Input, Net};
use train::training::Ended;

/// Of an image of one channel: the features of a sample.
const SIDE: usize = 4;
const CHANNELS: usize = 4;
const HIDDEN: usize = 6;

const SPEC: &str = "name = \"layers\"\nseed = 3\nepochs = 3\nbatch_size = 8\n[model]\nname = \"layers\"\n\
    [dataset]\nname = \"random\"\nsamples = 80\nfeatures = 16\nval_split = 0.2\nworkers = 0\n\
    [optimizer]\nname = \"sgd\"\nlr = 0.05\nmomentum = 0.9\n[metrics]\nlog_every = 1\n";

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Config {}

/// Convolutions over the image, then its rows as a sequence.
#[derive(Module, Debug)]
struct Layers {
    conv: Conv2d,
    group_norm: GroupNorm,
    pool: MaxPool2d,
    widen: ConvTranspose2d,
    instance_norm: InstanceNorm,
    gru: Gru,
    lstm: Lstm,
    attention: MultiHeadAttention,
    layer_norm: LayerNorm,
    head: Linear,
}

impl Layers {
    fn new(device: &Device) -> Self {
        let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
        let layers = Self {
            conv: Conv2dConfig::new([1, CHANNELS], [3, 3]).with_padding(padding).init(device),
            group_norm: GroupNormConfig::new(2, CHANNELS).init(device),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            widen: ConvTranspose2dConfig::new([CHANNELS, 2], [2, 2]).with_stride([2, 2]).init(device),
            instance_norm: InstanceNormConfig::new(2).init(device),
            gru: GruConfig::new(2 * SIDE, HIDDEN, true).init(device),
            lstm: LstmConfig::new(HIDDEN, HIDDEN, true).init(device),
            attention: MultiHeadAttentionConfig::new(HIDDEN, 2).with_dropout(0.0).init(device),
            layer_norm: LayerNormConfig::new(HIDDEN).init(device),
            head: LinearConfig::new(HIDDEN, 1).init(device),
        };
        layers.map(&mut Fixed)
    }
}

/// Initial values that do not depend on a random stream: ranks are threads here and share one. Running state, which is not lazy, stays as it is.
pub(super) struct Fixed;

impl ModuleMapper for Fixed {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() {
            return param;
        }
        param.init_mapper(|drawn| {
            let shape = drawn.shape();
            let values: Vec<f32> =
                (0..shape.num_elements()).map(|i| 0.6 * ((i * i + 3 * i + 1) as f32).sin()).collect();
            Tensor::from_data(TensorData::new(values, shape), &drawn.device())
        })
    }
}

impl Net for Layers {
    fn forward(&self, input: Input) -> Tensor<2> {
        let rows = input.rows();
        let [batch, _] = rows.dims();
        let x = self.group_norm.forward(self.conv.forward(rows.reshape([batch, 1, SIDE, SIDE])));
        let x = self.instance_norm.forward(self.widen.forward(self.pool.forward(x)));
        let x = x.swap_dims(1, 2).reshape([batch, SIDE, 2 * SIDE]);
        let (x, _) = self.lstm.forward(self.gru.forward(x, None), None);
        let attended = self.attention.forward(MhaInput::self_attn(x.clone())).context;
        let x = self.layer_norm.forward(x + attended);
        self.head.forward(x.mean_dim(1).reshape([batch, HIDDEN]))
    }
}

fn train_to(run: &Run, sets: &[&str], world: usize, stop_at: u64) -> Ended {
    let sets: Vec<Override> = sets.iter().map(|set| Override::Set((*set).to_owned())).collect();
    let registry = Registry::standard().model("layers", |_: &Config, _, device| Layers::new(device));
    let tree = JobTree::parse("layers.toml", SPEC, &sets).unwrap();
    let plan = Plan::resolve(&tree, &registry, WorldRequest::of(world)).unwrap();
    trained(&plan, run.out(), stop_at).unwrap()
}

fn weights(run: &Run) -> checkpoint::TensorMap {
    load_any(run.out()).unwrap().model
}

#[test]
fn layers_of_burn_train_alike_on_one_rank_and_on_two() {
    let (start, one, two) = (Run::of(SPEC), Run::of(SPEC), Run::of(SPEC));
    train_to(&start, &["optimizer.lr=0"], 1, 1);
    assert_eq!(train_to(&one, &[], 1, u64::MAX), Ended::Done);
    assert_eq!(train_to(&two, &["batch_size=4"], 2, u64::MAX), Ended::Done);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-5 * b.abs().max(1.0);
    assert_eq!((one.steps().len(), two.steps().len()), (24, 24));
    for (a, b) in one.steps().iter().zip(two.steps()) {
        assert!(a.0 == b.0 && near(a.2, b.2), "{a:?} against {b:?}");
    }
    let (start, one, two) = (weights(&start), weights(&one), weights(&two));
    assert!(one.len() == two.len() && one.len() > 30, "{} tensors", one.len());
    for tensor in one.iter() {
        let (a, b) = (tensor.to_f32_vec(), two.get(&tensor.name).unwrap().to_f32_vec());
        let worst = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-5, "{}: {worst}", tensor.name);
        // Two biases have no gradient: a key's changes all scores of a row by the same, and the norm takes the other one away.
        if !["attention.key.bias", "widen.bias"].contains(&tensor.name.as_str()) {
            assert_ne!(a, start.get(&tensor.name).unwrap().to_f32_vec(), "{} is not trained", tensor.name);
        }
    }
}

#[test]
fn layers_of_burn_resume_to_the_same_bits() {
    for world in [1, 2] {
        let (whole, parts) = (Run::of(SPEC), Run::of(SPEC));
        assert_eq!(train_to(&whole, &[], world, u64::MAX), Ended::Done);
        for stop_at in [3, 5] {
            assert_eq!(train_to(&parts, &[], world, stop_at), Ended::Stopped);
        }
        assert_eq!(train_to(&parts, &[], world, u64::MAX), Ended::Done);
        assert!(parts.bits() == whole.bits(), "{world} ranks");
        assert_eq!((parts.steps(), parts.epochs()), (whole.steps(), whole.epochs()));
    }
}
