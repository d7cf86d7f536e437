//! The built-in models: the keys of their `[model]` tables, and the facts that each needs from the data set.

use super::gpt2_table::Gpt2Kind;
use super::llama_table::LlamaKind;
use super::sizes::{Size, check_input, features, image, outputs, tokens};
use super::{
    Cnn, CnnConfig, Depth, Gpt, GptConfig, LinearNet, Mlp, Model, ModelKind, ModelSource, Net, NetModel,
    Preset, ResNet, Stem, TensorFacts, Vit, VitConfig, VitPreset,
};
use base::error::{Error, Result};
use base::panics::catch_model_panic;
use burn::tensor::Device;
use data::DataFacts;
use ddp::device::Compute;
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

/// The built-in models by name.
pub fn standard_kinds() -> Vec<(&'static str, Arc<dyn ModelKind>)> {
    let resnet_of = |depth| -> Arc<dyn ModelKind> {
        Arc::new(move |fields: &mut Fields<'_>, facts: &DataFacts| resnet(depth, fields, facts))
    };
    vec![
        ("linear", Arc::new(linear)),
        ("mlp", Arc::new(mlp)),
        ("cnn", Arc::new(cnn)),
        ("resnet18", resnet_of(Depth::RESNET18)),
        ("resnet34", resnet_of(Depth::RESNET34)),
        ("resnet50", resnet_of(Depth::RESNET50)),
        ("vit", Arc::new(vit)),
        ("gpt", Arc::new(gpt)),
        ("gpt2", Arc::new(Gpt2Kind)),
        ("llama", Arc::new(LlamaKind)),
    ]
}

/// A network constructor, and the facts known before the data is read.
struct NetSource<N, B> {
    facts: DataFacts,
    build: B,
    net: std::marker::PhantomData<fn() -> N>,
    unbuilt: Unbuilt,
}

type OfData<T> = Box<dyn Fn(&DataFacts) -> Option<T> + Send + Sync>;

/// What is known of the model without building it, given the data.
pub(super) struct Unbuilt {
    /// [`ModelSource::least_norm_values`]
    norm_values: OfData<usize>,
    /// [`ModelSource::kept_values`]
    kept_values: OfData<usize>,
    /// [`ModelSource::config_json`]
    config_json: OfData<Map<String, Json>>,
}

impl Unbuilt {
    fn unknown() -> Self {
        let unknown = |_: &DataFacts| None;
        Self {
            norm_values: Box::new(unknown),
            kept_values: Box::new(unknown),
            config_json: Box::new(|_| None),
        }
    }

    pub(super) fn kept(values: impl Fn(&DataFacts) -> Option<usize> + Send + Sync + 'static) -> Self {
        Self { kept_values: Box::new(values), ..Self::unknown() }
    }

    pub(super) fn config_json(
        self,
        config: impl Fn(&DataFacts) -> Option<Map<String, Json>> + Send + Sync + 'static,
    ) -> Self {
        Self { config_json: Box::new(config), ..self }
    }
}

impl<N, B> NetSource<N, B>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync,
{
    /// Builds the network on a device with autodiff. A panic of the constructor means that the model does not fit the data.
    fn net(&self, facts: &DataFacts, device: &Device) -> Result<N> {
        catch_model_panic(|| (self.build)(facts, device)).unwrap_or_else(|why| {
            Err(Error::spec(format!("cannot build the model for this data set: {why}")))
        })
    }
}

impl<N, B> ModelSource for NetSource<N, B>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync,
{
    fn tensors(&self) -> Option<Vec<TensorFacts>> {
        self.tensors_for(&self.facts).ok()
    }

    fn tensors_for(&self, facts: &DataFacts) -> Result<Vec<TensorFacts>> {
        let net = self.net(facts, &Device::flex().autodiff())?;
        Ok(NetModel::entries_of(&net).iter().map(TensorFacts::from_entry).collect())
    }

    fn least_norm_values(&self, facts: &DataFacts) -> Option<usize> {
        (self.unbuilt.norm_values)(facts)
    }

    fn kept_values(&self, facts: &DataFacts) -> Option<usize> {
        (self.unbuilt.kept_values)(facts)
    }

    fn config_json(&self, facts: &DataFacts) -> Option<Map<String, Json>> {
        (self.unbuilt.config_json)(facts)
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
    source_with(facts, Unbuilt::unknown(), build)
}

pub(super) fn source_with<N, B>(facts: &DataFacts, unbuilt: Unbuilt, build: B) -> Arc<dyn ModelSource>
where
    N: Net,
    B: Fn(&DataFacts, &Device) -> Result<N> + Send + Sync + 'static,
{
    Arc::new(NetSource { facts: facts.clone(), build, net: std::marker::PhantomData, unbuilt })
}

/// A model kind from a function, for `Registry::try_model`. The `[model]` table, without `name` and the
/// `pretrained` keys, is deserialised into `C`.
pub fn from_fn<C, N, F>(build: F) -> impl ModelKind
where
    C: DeserializeOwned + JsonSchema + Send + Sync + 'static,
    N: Net,
    F: Fn(&C, &DataFacts, &Device) -> Result<N> + Send + Sync + 'static,
{
    let build = Arc::new(build);
    move |fields: &mut Fields<'_>, facts: &DataFacts| {
        let (config, build): (Option<C>, _) = (fields.parse(), build.clone());
        source(facts, move |facts: &DataFacts, device: &Device| match &config {
            Some(config) => build(config, facts, device).map_err(|e| {
                let message = format!("cannot build the model: {}", e.message);
                Error { message, ..e }.of_data()
            }),
            None => Err(Error::spec("the [model] table is invalid")),
        })
    }
}

/// One linear layer.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
struct LinearTable {
    /// Values per sample. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    in_features: Option<usize>,
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    out_features: Option<usize>,
}

fn linear(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, features(facts));
    let table: LinearTable = fields.config();
    let inputs = Size::exactly(fields, facts, ("in_features", table.in_features), features);
    let out = Size::exactly(fields, facts, ("out_features", table.out_features), outputs);
    source(facts, move |facts: &DataFacts, device: &Device| {
        Ok(LinearNet::new(inputs.resolve(facts)?, out.resolve(facts)?, device))
    })
}

/// A multilayer perceptron.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct MlpTable {
    /// Values per sample. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    in_features: Option<usize>,
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    num_classes: Option<usize>,
    /// Widths of the hidden layers, each followed by ReLU.
    #[default(vec![512, 512])]
    #[schemars(inner(range(min = 1, max = 1_048_576)))]
    hidden: Vec<usize>,
    /// Dropout probability after each hidden layer.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    dropout: f64,
}

fn mlp(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, features(facts));
    let table: MlpTable = fields.config();
    let inputs = Size::exactly(fields, facts, ("in_features", table.in_features), features);
    let out = Size::exactly(fields, facts, ("num_classes", table.num_classes), outputs);
    let widths = table.hidden.clone();
    let kept = Unbuilt::kept(move |_| Some(widths.iter().copied().fold(0, usize::saturating_add)));
    source_with(facts, kept, move |facts: &DataFacts, device: &Device| {
        let mut sizes = vec![inputs.resolve(facts)?];
        sizes.extend(&table.hidden);
        sizes.push(out.resolve(facts)?);
        Ok(Mlp::new(&sizes, table.dropout, device))
    })
}

/// A convolutional network.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct CnnTable {
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    num_classes: Option<usize>,
    /// One block per entry: a 3x3 convolution with this many channels, ReLU and 2x2 max pooling.
    #[default(vec![32, 64])]
    #[schemars(inner(range(min = 1, max = 8192)))]
    channels: Vec<usize>,
    /// Width of the hidden layer after the blocks.
    #[default = 128]
    #[schemars(range(min = 1, max = 1_048_576))]
    hidden: usize,
    /// Dropout probability before the last layer.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    dropout: f64,
}

fn cnn(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, image(facts));
    let CnnTable { num_classes, channels, hidden, dropout } = fields.config();
    let out = Size::exactly(fields, facts, ("num_classes", num_classes), outputs);
    if let Ok([_, height, width]) = image(facts)
        && (height.min(width) >> channels.len()) == 0
    {
        let depth = channels.len();
        fields.problem("channels", format!("an image of {height}x{width} is too small for {depth} poolings"));
    }
    let config =
        move |input, outputs| CnnConfig { input, channels: channels.clone(), hidden, outputs, dropout };
    let of = config.clone();
    let kept = Unbuilt::kept(move |facts| Some(of(image(facts).ok()?, 0).kept_values()));
    source_with(facts, kept, move |facts: &DataFacts, device: &Device| {
        Ok(Cnn::new(&config(image(facts)?, out.resolve(facts)?), device))
    })
}

/// Structure and tensor names are torchvision's. As in PyTorch, batch norm trains on more than one value per channel only: where the
/// last stage has maps of one pixel, no micro-batch may be a single sample.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-summaries" = {
    "resnet18": "A residual network of 18 layers; 11.7 million parameters with 1000 classes.",
    "resnet34": "A residual network of 34 layers; 21.8 million parameters with 1000 classes.",
    "resnet50": "A residual network of 50 layers in bottleneck blocks; 25.6 million parameters with 1000 classes.",
}))]
struct ResNetTable {
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    num_classes: Option<usize>,
    /// The first layers.
    stem: Stem,
}

fn resnet(depth: Depth, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, image(facts));
    let ResNetTable { num_classes, stem } = fields.config();
    let out = Size::exactly(fields, facts, ("num_classes", num_classes), outputs);
    let build = move |facts: &DataFacts, device: &Device| {
        let [channels, _, _] = image(facts)?;
        let classes = out.resolve(facts)?;
        Ok(ResNet::new(depth, stem, channels, classes, device))
    };
    let sizes = Unbuilt {
        norm_values: Box::new(move |facts| Some(stem.least_norm_values(image(facts).ok()?))),
        kept_values: Box::new(move |facts| Some(depth.kept_values(stem, image(facts).ok()?))),
        ..Unbuilt::unknown()
    };
    source_with(facts, sizes, build)
}

/// A vision transformer. Structure and tensor names are torchvision's.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct VitTable {
    /// Default of the next four sizes.
    #[default(VitPreset::B16)]
    preset: VitPreset,
    /// Side of a patch in pixels; divides the images' height and width. Default: from the preset.
    #[schemars(range(min = 1, max = 8192))]
    patch_size: Option<usize>,
    /// Transformer blocks. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    num_layers: Option<usize>,
    /// Attention heads. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    num_heads: Option<usize>,
    /// Width of the tokens, a multiple of `num_heads`. Default: from the preset.
    #[schemars(range(min = 1, max = 65_536))]
    hidden_dim: Option<usize>,
    /// Width of the MLPs' hidden layer. Default: four times `hidden_dim`.
    #[schemars(range(min = 1, max = 1_048_576))]
    mlp_dim: Option<usize>,
    /// Dropout probability of the tokens and of each block's results.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    dropout: f64,
    /// Dropout probability of the attention weights.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    attention_dropout: f64,
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    num_classes: Option<usize>,
}

fn vit(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, image(facts));
    let table: VitTable = fields.config();
    let [side, layers, heads, width] = table.preset.sizes();
    let patch_size = fields.or_default("patch_size", table.patch_size, side);
    let num_layers = fields.or_default("num_layers", table.num_layers, layers);
    let num_heads = fields.or_default("num_heads", table.num_heads, heads);
    let hidden_dim = fields.or_default("hidden_dim", table.hidden_dim, width);
    let mlp_dim = fields.or_default("mlp_dim", table.mlp_dim, 4 * hidden_dim);
    let (dropout, attention_dropout) = (table.dropout, table.attention_dropout);
    let classes = ("num_classes", table.num_classes);
    let classes = Size::exactly(fields, facts, classes, outputs);
    if !hidden_dim.is_multiple_of(num_heads) {
        let found = format!("must be a multiple of num_heads = {num_heads}, found {hidden_dim}");
        fields.problem("hidden_dim", found);
    }
    let fits = move |[_, height, width]: [usize; 3]| -> Option<String> {
        let divides = height.is_multiple_of(patch_size) && width.is_multiple_of(patch_size);
        (!divides)
            .then(|| format!("images of {height}x{width} can't be cut into patches of {patch_size} pixels"))
    };
    if let Some(problem) = image(facts).ok().and_then(fits) {
        fields.problem("patch_size", problem);
    }
    let config = move |image, num_classes| VitConfig {
        image,
        patch_size,
        num_layers,
        num_heads,
        hidden_dim,
        mlp_dim,
        num_classes,
        dropout,
        attention_dropout,
    };
    let kept = Unbuilt::kept(move |facts| Some(config(image(facts).ok()?, 0).kept_values()));
    source_with(facts, kept, move |facts: &DataFacts, device: &Device| {
        let (image, num_classes) = (image(facts)?, classes.resolve(facts)?);
        if let Some(problem) = fits(image) {
            return Err(Error::spec(format!("model.patch_size: {problem}")));
        }
        Ok(Vit::new(config(image, num_classes), device))
    })
}

/// A decoder-only transformer, as in nanoGPT.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct GptTable {
    /// Default of the next three sizes.
    #[default(Preset::Micro)]
    preset: Preset,
    /// Transformer blocks. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    n_layer: Option<usize>,
    /// Attention heads. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    n_head: Option<usize>,
    /// Width of the embedding, a multiple of `n_head`. Default: from the preset.
    #[schemars(range(min = 1, max = 65_536))]
    n_embd: Option<usize>,
    /// Dropout probability.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    dropout: f64,
    /// Positions; at least the data set's `block_size`. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    block_size: Option<usize>,
    /// Tokens; at least the data set's. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    vocab_size: Option<usize>,
}

fn gpt(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, tokens(facts));
    let table: GptTable = fields.config();
    let ((layers, heads, width), dropout) = (table.preset.sizes(), table.dropout);
    let n_layer = fields.or_default("n_layer", table.n_layer, layers);
    let n_head = fields.or_default("n_head", table.n_head, heads);
    let n_embd = fields.or_default("n_embd", table.n_embd, width);
    let (block, vocab) = (("block_size", table.block_size), ("vocab_size", table.vocab_size));
    let block = Size::at_least(fields, facts, block, |facts| Ok(tokens(facts)?.0));
    let vocab = Size::at_least(fields, facts, vocab, |facts| Ok(tokens(facts)?.1));
    if !n_embd.is_multiple_of(n_head) {
        fields.problem("n_embd", format!("must be a multiple of n_head = {n_head}, found {n_embd}"));
    }
    let config =
        move |block_size, vocab_size| GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, dropout };
    let kept = Unbuilt::kept(move |facts| Some(config(tokens(facts).ok()?.0, 0).kept_values()));
    source_with(facts, kept, move |facts: &DataFacts, device: &Device| {
        Ok(Gpt::new(config(block.resolve(facts)?, vocab.resolve(facts)?), device))
    })
}
