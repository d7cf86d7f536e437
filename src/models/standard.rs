//! The models that ship with ddp-run: how each reads its `[model]` table, and what it needs to know of the data.

use super::sizes::{Size, at_least, exactly, features, fits, image, outputs, tokens, unless_numbers};
use super::{
    Cnn, CnnConfig, Depth, Gpt, GptConfig, LinearNet, Mlp, Model, ModelKind, ModelSource, Net, NetModel,
    ResNet, Stem, TensorFacts,
};
use crate::caught::caught;
use crate::data::DataFacts;
use crate::device::Compute;
use crate::error::{Error, Result};
use crate::spec::Fields;
use burn::tensor::Device;
use std::sync::Arc;

/// Every model that ships with ddp-run, under its name in specs.
pub fn standard_kinds() -> Vec<(&'static str, Arc<dyn ModelKind>)> {
    vec![
        ("linear", Arc::new(LinearKind)),
        ("mlp", Arc::new(MlpKind)),
        ("cnn", Arc::new(CnnKind)),
        ("resnet18", Arc::new(ResNetKind(Depth::RESNET18))),
        ("resnet34", Arc::new(ResNetKind(Depth::RESNET34))),
        ("resnet50", Arc::new(ResNetKind(Depth::RESNET50))),
        ("gpt", Arc::new(GptKind)),
    ]
}

/// A network and what is left to decide when the data is known.
struct Source<N, B> {
    facts: DataFacts,
    build: B,
    net: std::marker::PhantomData<fn() -> N>,
}

impl<N, B> Source<N, B>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync,
{
    /// On a device with autodiff. A constructor that panics does not take this data.
    fn net(&self, facts: &DataFacts, device: &Device) -> Result<N> {
        caught(|| (self.build)(facts, device)).unwrap_or_else(|why| {
            Err(Error::spec(format!("the model can't be built for this data set: {why}")))
        })
    }
}

impl<N, B> ModelSource for Source<N, B>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync,
{
    fn tensors(&self) -> Option<Vec<TensorFacts>> {
        let net = self.net(&self.facts, &Device::flex().autodiff()).ok()?;
        let facts = |e: super::StateEntry| TensorFacts { name: e.name, shape: e.shape, role: e.role };
        Some(NetModel::entries_of(&net).into_iter().map(facts).collect())
    }

    fn build(&self, facts: &DataFacts, seed: u64, on: &Compute) -> Result<Box<dyn Model>> {
        Ok(Box::new(NetModel::new(on, seed, |device| self.net(facts, device))?))
    }
}

fn source<N, B>(facts: &DataFacts, build: B) -> Arc<dyn ModelSource>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync + 'static,
{
    Arc::new(Source { facts: facts.clone(), build, net: std::marker::PhantomData })
}

/// A model kind from a plain function: what [`crate::registry::Registry::model`] makes of a user's closure. The whole
/// `[model]` table, less `name` and the `pretrained` keys, is read into `C`.
pub struct FnModel<C, F> {
    build: Arc<F>,
    config: std::marker::PhantomData<fn() -> C>,
}

impl<C, F> FnModel<C, F> {
    pub fn new(build: F) -> Self {
        Self { build: Arc::new(build), config: std::marker::PhantomData }
    }
}

impl<C, N, F> ModelKind for FnModel<C, F>
where
    C: serde::de::DeserializeOwned + schemars::JsonSchema + Send + Sync + 'static,
    N: Net,
    F: Fn(&C, &DataFacts, &Device) -> N + Send + Sync + 'static,
{
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        let config: Option<C> = fields.parse();
        let build = self.build.clone();
        source(facts, move |facts: &DataFacts, device: &Device| match &config {
            Some(config) => Ok(build(config, facts, device)),
            None => Err(Error::spec("the [model] table is invalid")),
        })
    }
}

struct LinearKind;

impl ModelKind for LinearKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, features(facts));
        let inputs = Size::read(fields, facts, "in_features", features, exactly);
        let out = Size::read(fields, facts, "out_features", outputs, unless_numbers);
        source(facts, move |facts: &DataFacts, device: &Device| {
            Ok(LinearNet::new(inputs.of(facts)?, out.of(facts)?, device))
        })
    }
}

struct MlpKind;

impl ModelKind for MlpKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, features(facts));
        let inputs = Size::read(fields, facts, "in_features", features, exactly);
        let out = Size::read(fields, facts, "num_classes", outputs, unless_numbers);
        let hidden = fields.usizes("hidden", 1..=1 << 20, &[512, 512]);
        let dropout = fields.f64("dropout", 0.0..1.0, 0.0);
        source(facts, move |facts: &DataFacts, device: &Device| {
            let mut sizes = vec![inputs.of(facts)?];
            sizes.extend(&hidden);
            sizes.push(out.of(facts)?);
            Ok(Mlp::new(&sizes, dropout, device))
        })
    }
}

struct CnnKind;

impl ModelKind for CnnKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, image(facts));
        let out = Size::read(fields, facts, "num_classes", outputs, unless_numbers);
        let channels = fields.usizes("channels", 1..=8192, &[32, 64]);
        let hidden = fields.usize("hidden", 1..=1 << 20, 128);
        let dropout = fields.f64("dropout", 0.0..1.0, 0.0);
        if let Ok([_, height, width]) = image(facts)
            && (height.min(width) >> channels.len()) == 0
        {
            let depth = channels.len();
            fields.problem("channels", format!("{depth} poolings leave nothing of a {height}x{width} image"));
        }
        source(facts, move |facts: &DataFacts, device: &Device| {
            let (input, outputs) = (image(facts)?, out.of(facts)?);
            let config = CnnConfig { input, channels: channels.clone(), hidden, outputs, dropout };
            Ok(Cnn::new(&config, device))
        })
    }
}

struct ResNetKind(Depth);

impl ModelKind for ResNetKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, image(facts));
        let out = Size::read(fields, facts, "num_classes", outputs, unless_numbers);
        let stem = fields.choice("stem", &[("imagenet", Stem::ImageNet), ("cifar", Stem::Cifar)], "imagenet");
        let depth = self.0;
        source(facts, move |facts: &DataFacts, device: &Device| {
            let [channels, _, _] = image(facts)?;
            let classes = out.of(facts)?;
            Ok(ResNet::new(depth, stem, channels, classes, device))
        })
    }
}

/// Layers, heads, width of the named sizes (nanoGPT's, and GPT-2's published ones).
const PRESETS: &[(&str, (usize, usize, usize))] = &[
    ("nano", (3, 3, 48)),
    ("micro", (4, 4, 128)),
    ("mini", (6, 6, 192)),
    ("shakespeare", (6, 6, 384)),
    ("gpt2", (12, 12, 768)),
    ("gpt2-medium", (24, 16, 1024)),
];

struct GptKind;

impl ModelKind for GptKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, tokens(facts));
        let (layers, heads, width) = fields.choice("preset", PRESETS, "micro");
        let n_layer = fields.usize("n_layer", 1..=512, layers);
        let n_head = fields.usize("n_head", 1..=512, heads);
        let n_embd = fields.usize("n_embd", 1..=65536, width);
        let dropout = fields.f64("dropout", 0.0..1.0, 0.0);
        let block = Size::read(fields, facts, "block_size", |facts| Ok(tokens(facts)?.0), at_least);
        let vocab = Size::read(fields, facts, "vocab_size", |facts| Ok(tokens(facts)?.1), at_least);
        if !n_embd.is_multiple_of(n_head) {
            fields.problem("n_embd", format!("must be a multiple of n_head = {n_head}, found {n_embd}"));
        }
        source(facts, move |facts: &DataFacts, device: &Device| {
            let (block_size, vocab_size) = (block.of(facts)?, vocab.of(facts)?);
            let config = GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, dropout };
            Ok(Gpt::new(config, device))
        })
    }
}
