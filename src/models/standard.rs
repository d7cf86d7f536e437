//! The models that ship with ddp-run: how each reads its `[model]` table, and what it needs to know of the data.

use super::{
    Cnn, CnnConfig, Depth, Gpt, GptConfig, LinearNet, Mlp, Model, ModelKind, ModelSource, Net, NetModel,
    ResNet, Stem, TensorFacts,
};
use crate::data::{DataFacts, FieldFacts, FieldKind};
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
struct Source<B> {
    facts: DataFacts,
    build: B,
}

impl<N, B> ModelSource for Source<B>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync,
{
    fn tensors(&self) -> Option<Vec<TensorFacts>> {
        let net = (self.build)(&self.facts, &Device::flex().autodiff()).ok()?;
        let facts = |e: super::StateEntry| TensorFacts { name: e.name, shape: e.shape, role: e.role };
        Some(NetModel::entries_of(&net).into_iter().map(facts).collect())
    }

    fn build(&self, facts: &DataFacts, seed: u64, on: &Compute) -> Result<Box<dyn Model>> {
        // Refused before anything is drawn, so that the error is the spec's and not a shape mismatch deep in a layer.
        (self.build)(facts, &Device::flex())?;
        let build = |device: &Device| (self.build)(facts, device);
        let model = NetModel::new(on, seed, |d| build(d).expect("built once already"))?;
        Ok(Box::new(model))
    }
}

fn source<N, B>(facts: &DataFacts, build: B) -> Arc<dyn ModelSource>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync + 'static,
{
    Arc::new(Source { facts: facts.clone(), build })
}

/// A model kind from a plain function: what [`crate::registry::Registry::model`] makes of a user's closure. The whole
/// `[model]` table, less `name` and the `pretrained` keys, is deserialised into `C`.
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
    C: serde::de::DeserializeOwned + Send + Sync + 'static,
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

/// Values in one sample, where the data set gives floats.
fn features(facts: &DataFacts) -> Result<usize> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Float }) => Ok(shape.iter().product()),
        Some(_) => Err(Error::spec("this model reads float inputs; the data set gives tokens")),
        None => Err(Error::spec("the data set's input shape is not known yet")),
    }
}

/// Channels, height and width of one image.
fn image(facts: &DataFacts) -> Result<[usize; 3]> {
    match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Float }) => shape.as_slice().try_into().map_err(|_| {
            Error::spec(format!(
                "this model reads images [channels, height, width]; the data set gives {shape:?}"
            ))
        }),
        Some(_) => Err(Error::spec("this model reads images; the data set gives tokens")),
        None => Err(Error::spec("the data set's input shape is not known yet")),
    }
}

/// Outputs of the head: classes, or values of one target.
fn outputs(facts: &DataFacts) -> Result<usize> {
    match &facts.target {
        Some(FieldFacts { kind: FieldKind::Index(classes), .. }) => Ok(*classes),
        Some(FieldFacts { shape, kind: FieldKind::Float }) => Ok(shape.iter().product()),
        None => Err(Error::spec("the data set's targets are not known yet")),
    }
}

/// A size given in the spec must be the data's, where that is known: at least as many classes, exactly as many features.
fn checked(fields: &mut Fields<'_>, key: &'static str, known: Result<usize>, exact: bool) -> Option<usize> {
    let given = fields.opt_usize(key, 1..=1 << 24)?;
    if let Ok(known) = known
        && (given < known || exact && given != known)
    {
        let least = if exact { "" } else { "at least " };
        fields.problem(key, format!("the data set needs {least}{known}, found {given}"));
    }
    Some(given)
}

/// Reports a data set that the model can't read, at the model's name. Facts that are not known yet pass.
fn fits<T>(fields: &mut Fields<'_>, facts: &DataFacts, read: Result<T>) {
    if let (Some(_), Err(e)) = (&facts.input, read) {
        fields.problem("name", e.message);
    }
}

struct LinearKind;

impl ModelKind for LinearKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, features(facts));
        let inputs = checked(fields, "in_features", features(facts), true);
        let out = checked(fields, "out_features", outputs(facts), false);
        source(facts, move |facts: &DataFacts, device: &Device| {
            Ok(LinearNet::new(
                inputs.map_or_else(|| features(facts), Ok)?,
                out.map_or_else(|| outputs(facts), Ok)?,
                device,
            ))
        })
    }
}

struct MlpKind;

impl ModelKind for MlpKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, features(facts));
        let inputs = checked(fields, "in_features", features(facts), true);
        let out = checked(fields, "num_classes", outputs(facts), false);
        let hidden = fields.usizes("hidden", 1..=1 << 20, &[512, 512]);
        let dropout = fields.f64("dropout", 0.0..1.0, 0.0);
        source(facts, move |facts: &DataFacts, device: &Device| {
            let mut sizes = vec![inputs.map_or_else(|| features(facts), Ok)?];
            sizes.extend(&hidden);
            sizes.push(out.map_or_else(|| outputs(facts), Ok)?);
            Ok(Mlp::new(&sizes, dropout, device))
        })
    }
}

struct CnnKind;

impl ModelKind for CnnKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, image(facts));
        let out = checked(fields, "num_classes", outputs(facts), false);
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
            let outputs = out.map_or_else(|| outputs(facts), Ok)?;
            let config =
                CnnConfig { input: image(facts)?, channels: channels.clone(), hidden, outputs, dropout };
            Ok(Cnn::new(&config, device))
        })
    }
}

struct ResNetKind(Depth);

impl ModelKind for ResNetKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        fits(fields, facts, image(facts));
        let out = checked(fields, "num_classes", outputs(facts), false);
        let stem = fields.choice("stem", &[("imagenet", Stem::ImageNet), ("cifar", Stem::Cifar)], "imagenet");
        let depth = self.0;
        source(facts, move |facts: &DataFacts, device: &Device| {
            let [channels, _, _] = image(facts)?;
            let classes = out.map_or_else(|| outputs(facts), Ok)?;
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
        let (time, vocab) = match &facts.input {
            Some(FieldFacts { shape, kind: FieldKind::Index(vocab) }) if shape.len() == 1 => {
                (Some(shape[0]), Some(*vocab))
            }
            Some(other) => {
                let shape = &other.shape;
                fields.problem(
                    "name",
                    format!("gpt reads windows of tokens; the data set gives {shape:?} floats"),
                );
                (None, None)
            }
            None => (None, None),
        };
        let (layers, heads, width) = fields.choice("preset", PRESETS, "micro");
        let n_layer = fields.usize("n_layer", 1..=512, layers);
        let n_head = fields.usize("n_head", 1..=512, heads);
        let n_embd = fields.usize("n_embd", 1..=65536, width);
        let dropout = fields.f64("dropout", 0.0..1.0, 0.0);
        let block = checked(fields, "block_size", time.ok_or_else(unknown), false);
        let vocab_size = checked(fields, "vocab_size", vocab.ok_or_else(unknown), false);
        if !n_embd.is_multiple_of(n_head) {
            fields.problem("n_embd", format!("must be a multiple of n_head = {n_head}, found {n_embd}"));
        }
        source(facts, move |facts: &DataFacts, device: &Device| {
            let (time, vocab) = tokens(facts, block, vocab_size)?;
            let config = GptConfig { vocab_size: vocab, block_size: time, n_layer, n_head, n_embd, dropout };
            Ok(Gpt::new(config, device))
        })
    }
}

fn unknown() -> Error {
    Error::spec("not known before the data is read")
}

/// Block size and vocabulary: the spec's where given, and large enough for the data.
fn tokens(facts: &DataFacts, block: Option<usize>, vocab: Option<usize>) -> Result<(usize, usize)> {
    let (time, symbols) = match &facts.input {
        Some(FieldFacts { shape, kind: FieldKind::Index(symbols) }) if shape.len() == 1 => {
            (shape[0], *symbols)
        }
        Some(_) => return Err(Error::spec("gpt reads windows of tokens")),
        None => return block.zip(vocab).ok_or_else(unknown),
    };
    let (block, vocab) = (block.unwrap_or(time), vocab.unwrap_or(symbols));
    if block < time || vocab < symbols {
        let message = format!(
            "the data set gives {time} tokens of {symbols} symbols; [model] says block_size = {block}, vocab_size = {vocab}"
        );
        return Err(Error::spec(message));
    }
    Ok((block, vocab))
}
