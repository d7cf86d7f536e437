//! The `[model]` table of a vision transformer, and its config.json.

use super::kind::{check_preset, expect};
use super::sizes::{Size, check_input, image, outputs};
use super::standard::{Unbuilt, source_with};
use super::vit::EPS;
use super::{ModelKind, ModelSource, Vit, VitConfig, VitPreset};
use base::error::Error;
use burn::tensor::Device;
use checkpoint::HubTensor;
use data::DataFacts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

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
    /// Added to the variance in the norms. Default: torchvision's 1e-6.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    layer_norm_eps: Option<f64>,
    /// Outputs: classes, or numbers of the target. Default: from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    num_classes: Option<usize>,
}

/// Reads the table, and config.json.
pub(super) struct VitKind;

impl ModelKind for VitKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        vit(fields, facts)
    }

    fn keys_of_config(&self, config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        keys(config)
    }
}

/// The keys that follow from config.json, with the defaults of transformers 5. Dropout is the spec's, and images and classes are those of
/// the data.
fn keys(config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
    let set = |key: &str| config.get(key).filter(|value| !value.is_null());
    // Other libraries, such as timm, have a config.json of their own and torchvision's names.
    if !config.contains_key("model_type") {
        return Ok(Map::new());
    }
    for (key, expected) in
        [("model_type", json!("vit")), ("hidden_act", json!("gelu")), ("qkv_bias", json!(true))]
    {
        expect(key, &expected, set(key))?;
    }
    let keys = [
        ("patch_size", "patch_size", json!(16)),
        ("num_layers", "num_hidden_layers", json!(12)),
        ("num_heads", "num_attention_heads", json!(12)),
        ("hidden_dim", "hidden_size", json!(768)),
        ("mlp_dim", "intermediate_size", json!(3072)),
        ("layer_norm_eps", "layer_norm_eps", json!(1e-12)),
    ];
    Ok(keys
        .map(|(own, key, default)| (own.to_owned(), set(key).cloned().unwrap_or(default)))
        .into_iter()
        .collect())
}

fn config_json(config: &VitConfig) -> Map<String, Json> {
    let [channels, height, width] = config.image;
    let json = json!({
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "num_channels": channels,
        "image_size": if height == width { json!(height) } else { json!([height, width]) },
        "patch_size": config.patch_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.mlp_dim,
        "hidden_act": "gelu",
        "qkv_bias": true,
        "layer_norm_eps": config.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "num_labels": config.num_classes,
    });
    json.as_object().cloned().unwrap_or_default()
}

/// The names of transformers, in whose files queries, keys and values are apart.
fn hub_tensor(name: &str) -> HubTensor {
    let same = |name: String| HubTensor::Same(name);
    let outside = [
        ("class_token", "vit.embeddings.cls_token"),
        ("encoder.pos_embedding", "vit.embeddings.position_embeddings"),
        ("conv_proj.", "vit.embeddings.patch_embeddings.projection."),
        ("encoder.ln.", "vit.layernorm."),
        ("heads.head.", "classifier."),
    ];
    if let Some((hub, rest)) = outside.iter().find_map(|(own, hub)| Some((hub, name.strip_prefix(own)?))) {
        return same(format!("{hub}{rest}"));
    }
    let of_block = name.strip_prefix("encoder.layers.encoder_layer_").and_then(|rest| rest.split_once('.'));
    let Some((block, rest)) = of_block else { return HubTensor::same(name) };
    let block = format!("vit.encoder.layer.{block}");
    if let Some(tensor) = rest.strip_prefix("self_attention.in_proj_") {
        let part = |part| format!("{block}.attention.attention.{part}.{tensor}");
        return HubTensor::Thirds(["query", "key", "value"].map(part));
    }
    let inside = [
        ("ln_1.", "layernorm_before."),
        ("self_attention.out_proj.", "attention.output.dense."),
        ("ln_2.", "layernorm_after."),
        ("mlp.0.", "intermediate.dense."),
        ("mlp.3.", "output.dense."),
    ];
    let found =
        inside.iter().find_map(|(own, hub)| Some(format!("{block}.{hub}{}", rest.strip_prefix(own)?)));
    found.map_or_else(|| HubTensor::same(name), same)
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
    // Not recorded: plans had no such key.
    let eps = table.layer_norm_eps.unwrap_or(EPS);
    let classes = ("num_classes", table.num_classes);
    let classes = Size::exactly(fields, facts, classes, outputs);
    let has_its_sizes = [patch_size, num_layers, num_heads, hidden_dim] == [side, layers, heads, width];
    check_preset(fields, table.preset == VitPreset::B16 || has_its_sizes);
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
        eps,
    };
    let kept = Unbuilt::kept(move |facts| Some(config(image(facts).ok()?, 0).kept_values()));
    let unbuilt = kept.config_json(move |facts| {
        Some(config_json(&config(image(facts).ok()?, classes.resolve(facts).ok()?)))
    });
    source_with(facts, unbuilt.hub_tensor(hub_tensor), move |facts: &DataFacts, device: &Device| {
        let (image, num_classes) = (image(facts)?, classes.resolve(facts)?);
        if let Some(problem) = fits(image) {
            return Err(Error::spec(format!("model.patch_size: {problem}")));
        }
        Ok(Vit::new(config(image, num_classes), device))
    })
}
