//! The built-in models: the keys of their `[model]` tables, and the facts that each needs from the data set.

use super::gpt_table::GptKind;
use super::gpt2_table::Gpt2Kind;
use super::llama_table::LlamaKind;
use super::resnet_table::ResNetKind;
use super::sizes::{Size, check_input, features, image, outputs};
use super::vit_table::VitKind;
use super::{
    Cnn, CnnConfig, Depth, LinearNet, Mlp, Model, ModelKind, ModelSource, Net, NetModel, TensorFacts,
};
use base::error::{Error, Result};
use base::panics::catch_model_panic;
use burn::tensor::Device;
use checkpoint::HubTensor;
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
    vec![
        ("linear", Arc::new(linear)),
        ("mlp", Arc::new(mlp)),
        ("cnn", Arc::new(cnn)),
        ("resnet18", Arc::new(ResNetKind(Depth::RESNET18))),
        ("resnet34", Arc::new(ResNetKind(Depth::RESNET34))),
        ("resnet50", Arc::new(ResNetKind(Depth::RESNET50))),
        ("vit", Arc::new(VitKind)),
        ("gpt", Arc::new(GptKind)),
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
    /// [`ModelSource::training_flops`]
    training_flops: OfData<f64>,
    /// [`ModelSource::config_json`]
    config_json: OfData<Map<String, Json>>,
    /// [`ModelSource::hub_tensor`]
    hub_tensor: fn(&str) -> HubTensor,
}

impl Unbuilt {
    fn unknown() -> Self {
        let unknown = |_: &DataFacts| None;
        Self {
            norm_values: Box::new(unknown),
            kept_values: Box::new(unknown),
            training_flops: Box::new(|_| None),
            config_json: Box::new(|_| None),
            hub_tensor: HubTensor::same,
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

    pub(super) fn training_flops(
        self,
        flops: impl Fn(&DataFacts) -> Option<f64> + Send + Sync + 'static,
    ) -> Self {
        Self { training_flops: Box::new(flops), ..self }
    }

    pub(super) fn hub_tensor(self, of: fn(&str) -> HubTensor) -> Self {
        Self { hub_tensor: of, ..self }
    }

    pub(super) fn norm_values(
        self,
        values: impl Fn(&DataFacts) -> Option<usize> + Send + Sync + 'static,
    ) -> Self {
        Self { norm_values: Box::new(values), ..self }
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

    fn training_flops(&self, facts: &DataFacts) -> Option<f64> {
        (self.unbuilt.training_flops)(facts)
    }

    fn config_json(&self, facts: &DataFacts) -> Option<Map<String, Json>> {
        (self.unbuilt.config_json)(facts)
    }

    fn hub_tensor(&self, name: &str) -> HubTensor {
        (self.unbuilt.hub_tensor)(name)
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
