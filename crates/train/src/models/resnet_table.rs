//! The `[model]` tables of the residual networks, and their config.json.

use super::kind::expect;
use super::sizes::{Size, check_input, image, outputs};
use super::standard::{Unbuilt, source_with};
use super::{Depth, ModelKind, ModelSource, ResNet, Stem};
use burn::tensor::Device;
use checkpoint::HubTensor;
use data::DataFacts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use spec::Fields;
use std::sync::Arc;

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

/// Reads the table, and config.json.
pub(super) struct ResNetKind(pub Depth);

impl ModelKind for ResNetKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        resnet(self.0, fields, facts)
    }

    fn keys_of_config(&self, config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        let own = config_json(self.0, 3, 1);
        // Other libraries, such as timm, have a config.json of their own and torchvision's names.
        let Some(model_type) = config.get("model_type") else { return Ok(Map::new()) };
        expect("model_type", &own["model_type"], Some(model_type))?;
        // Without these, transformers builds a ResNet-50.
        let defaults = config_json(Depth::RESNET50, 3, 1);
        let of_model =
            own.iter().filter(|(key, _)| !CLASSES.contains(&key.as_str()) && *key != "num_channels");
        for (key, expected) in of_model {
            let found = config.get(key).filter(|found| !found.is_null());
            expect(key, expected, found.or(defaults.get(key)))?;
        }
        Ok(Map::from_iter([("stem".to_owned(), json!(Stem::ImageNet))]))
    }
}

const CLASSES: [&str; 2] = ["num_labels", "architectures"];

fn config_json(depth: Depth, channels: usize, classes: usize) -> Map<String, Json> {
    let wide = if depth.bottleneck { 4 } else { 1 };
    let json = json!({
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "num_channels": channels,
        "num_labels": classes,
        "embedding_size": 64,
        "hidden_sizes": [64 * wide, 128 * wide, 256 * wide, 512 * wide],
        "depths": depth.blocks,
        "layer_type": if depth.bottleneck { "bottleneck" } else { "basic" },
        "hidden_act": "relu",
        "downsample_in_first_stage": false,
        "downsample_in_bottleneck": false,
    });
    json.as_object().cloned().unwrap_or_default()
}

/// The names of transformers: `layer2.0.conv1` is the first convolution of the first block of the second stage.
fn hub_tensor(name: &str) -> HubTensor {
    let (module, tensor) = name.rsplit_once('.').unwrap_or((name, ""));
    let parts: Vec<&str> = module.split('.').collect();
    let convolution = |layer: &str| {
        let kind = if layer.starts_with("bn") { "normalization" } else { "convolution" };
        let number: usize = layer.trim_start_matches(|c: char| c.is_alphabetic()).parse().ok()?;
        Some((number.checked_sub(1)?, kind))
    };
    let block = |stage: &str, block: &str| {
        let stage: usize = stage.strip_prefix("layer")?.parse().ok()?;
        Some(format!("resnet.encoder.stages.{}.layers.{block}", stage.checked_sub(1)?))
    };
    let hub = match parts[..] {
        ["fc"] => Some("classifier.1".to_owned()),
        [layer] => convolution(layer).map(|(_, kind)| format!("resnet.embedder.embedder.{kind}")),
        [stage, at, layer] => block(stage, at).and_then(|block| {
            convolution(layer).map(|(number, kind)| format!("{block}.layer.{number}.{kind}"))
        }),
        [stage, at, "downsample", "0"] => {
            block(stage, at).map(|block| format!("{block}.shortcut.convolution"))
        }
        [stage, at, "downsample", "1"] => {
            block(stage, at).map(|block| format!("{block}.shortcut.normalization"))
        }
        _ => None,
    };
    HubTensor::Same(hub.map_or_else(|| name.to_owned(), |hub| format!("{hub}.{tensor}")))
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
    let kept = Unbuilt::kept(move |facts| Some(depth.kept_values(stem, image(facts).ok()?)));
    let sizes = kept.norm_values(move |facts| Some(stem.least_norm_values(image(facts).ok()?)));
    // transformers has the published stem only.
    let unbuilt = sizes.config_json(move |facts| {
        let [channels, _, _] = image(facts).ok().filter(|_| stem == Stem::ImageNet)?;
        Some(config_json(depth, channels, out.resolve(facts).ok()?))
    });
    source_with(facts, unbuilt.hub_tensor(hub_tensor), build)
}
