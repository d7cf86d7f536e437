//! The `[model]` table of a GPT-2, and its config.json.

use super::kind::{check_preset, expect};
use super::sizes::{Size, check_input, tokens};
use super::standard::{Unbuilt, source_with};
use super::{Gpt2, Gpt2Config, ModelKind, ModelSource};
use burn::tensor::Device;
use data::DataFacts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::sync::Arc;

choice! {
    /// The published sizes, and a small one.
    Gpt2Preset:
    /// 2 layers, 4 heads, width 64; as many tokens and positions as the data has.
    Tiny = "tiny",
    /// 12 layers, 12 heads, width 768 (124M).
    Gpt2 = "gpt2",
    /// 24 layers, 16 heads, width 1024 (355M).
    Medium = "gpt2-medium",
    /// 36 layers, 20 heads, width 1280 (774M).
    Large = "gpt2-large",
    /// 48 layers, 25 heads, width 1600 (1558M).
    Xl = "gpt2-xl",
}

impl Gpt2Preset {
    /// Layers, heads, width.
    fn sizes(self) -> [usize; 3] {
        match self {
            Self::Tiny => [2, 4, 64],
            Self::Gpt2 => [12, 12, 768],
            Self::Medium => [24, 16, 1024],
            Self::Large => [36, 20, 1280],
            Self::Xl => [48, 25, 1600],
        }
    }
}

/// GPT-2 as published; keys and tensor names are those of Hugging Face.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct Gpt2Table {
    /// Default of the sizes.
    preset: Gpt2Preset,
    /// Tokens; at least the data set's. Default: 50257, or from the data with `tiny`.
    #[schemars(range(min = 1, max = 16_777_216))]
    vocab_size: Option<usize>,
    /// Positions; at least the data set's `block_size`. Default: 1024, or from the data with `tiny`.
    #[schemars(range(min = 1, max = 16_777_216))]
    n_positions: Option<usize>,
    /// Transformer blocks. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    n_layer: Option<usize>,
    /// Attention heads. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    n_head: Option<usize>,
    /// Width of the embedding, a multiple of `n_head`. Default: from the preset.
    #[schemars(range(min = 1, max = 65_536))]
    n_embd: Option<usize>,
    /// Width of the MLPs' hidden layer. Default: four times `n_embd`.
    #[schemars(range(min = 1, max = 1_048_576))]
    n_inner: Option<usize>,
    /// Added to the variance in the norms.
    #[default = 1e-5]
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    layer_norm_epsilon: f64,
    /// Dropout probability of the residual branches.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    resid_pdrop: f64,
    /// Dropout probability of the embeddings.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    embd_pdrop: f64,
    /// Dropout probability of attention weights.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    attn_pdrop: f64,
    /// Standard deviation of the initial weights.
    #[default = 0.02]
    #[schemars(range(min = 0.0))]
    initializer_range: f64,
}

/// Reads the table, and config.json.
pub(super) struct Gpt2Kind;

impl ModelKind for Gpt2Kind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        gpt2(fields, facts)
    }

    fn keys_of_config(&self, config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        keys(config)
    }
}

/// The keys that follow from config.json, with the defaults of transformers 5. Dropout and initial values are the spec's: the published
/// files have those of the pretraining.
fn keys(config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
    let set = |key: &str| config.get(key).filter(|value| !value.is_null());
    let expect = |key: &str, expected: Json| expect(key, &expected, set(key));
    let model_type = set("model_type").and_then(Json::as_str).unwrap_or_default();
    if model_type != "gpt2" {
        return Err(format!("expected `model_type` gpt2, found \"{model_type}\""));
    }
    if set("activation_function") != Some(&json!("gelu_pytorch_tanh")) {
        expect("activation_function", json!("gelu_new"))?;
    }
    expect("scale_attn_weights", json!(true))?;
    expect("scale_attn_by_inverse_layer_idx", json!(false))?;
    expect("add_cross_attention", json!(false))?;
    expect("tie_word_embeddings", json!(true))?;
    // Each with the name that transformers takes for it, too.
    let keys = [
        ("vocab_size", "vocab_size", json!(50_257)),
        ("n_positions", "max_position_embeddings", json!(1024)),
        ("n_layer", "num_hidden_layers", json!(12)),
        ("n_head", "num_attention_heads", json!(12)),
        ("n_embd", "hidden_size", json!(768)),
        ("layer_norm_epsilon", "layer_norm_epsilon", json!(1e-5)),
    ];
    let mut read = Map::new();
    for (key, alias, default) in keys {
        let value = match (set(key), set(alias)) {
            (Some(value), Some(other)) if value != other => {
                return Err(format!("`{key}` and `{alias}` are different: remove one"));
            }
            (value, other) => value.or(other).cloned().unwrap_or(default),
        };
        read.insert(key.to_owned(), value);
    }
    let inner = set("n_inner").cloned().or_else(|| Some(json!(4 * read["n_embd"].as_u64()?)));
    read.extend(inner.map(|inner| ("n_inner".to_owned(), inner)));
    Ok(read)
}

/// Without the tokens that begin and end a text.
fn config_json(config: &Gpt2Config) -> Map<String, Json> {
    let json = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.n_positions,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        "n_inner": config.n_inner,
        "activation_function": "gelu_new",
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "resid_pdrop": config.resid_pdrop,
        "embd_pdrop": config.embd_pdrop,
        "attn_pdrop": config.attn_pdrop,
        "initializer_range": config.initializer_range,
        "tie_word_embeddings": true,
    });
    json.as_object().cloned().unwrap_or_default()
}

fn gpt2(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, tokens(facts));
    let t: Gpt2Table = fields.config();
    let [layers, heads, width] = t.preset.sizes();
    let n_layer = fields.or_default("n_layer", t.n_layer, layers);
    let n_head = fields.or_default("n_head", t.n_head, heads);
    let n_embd = fields.or_default("n_embd", t.n_embd, width);
    let n_inner = fields.or_default("n_inner", t.n_inner, 4 * n_embd);
    let has_its_sizes = [n_layer, n_head, n_embd] == [layers, heads, width];
    check_preset(fields, t.preset == Gpt2Preset::Tiny || has_its_sizes);
    if !n_embd.is_multiple_of(n_head) {
        fields.problem("n_embd", format!("must be a multiple of n_head = {n_head}, found {n_embd}"));
    }
    let published = |size| (t.preset != Gpt2Preset::Tiny).then_some(size);
    let vocab = ("vocab_size", t.vocab_size.or(published(50_257)));
    let vocab = Size::at_least(fields, facts, vocab, |facts| Ok(tokens(facts)?.1));
    let positions = ("n_positions", t.n_positions.or(published(1024)));
    let positions = Size::at_least(fields, facts, positions, |facts| Ok(tokens(facts)?.0));
    let config = move |vocab_size, n_positions| Gpt2Config {
        vocab_size,
        n_positions,
        n_layer,
        n_head,
        n_embd,
        n_inner,
        layer_norm_epsilon: t.layer_norm_epsilon,
        resid_pdrop: t.resid_pdrop,
        embd_pdrop: t.embd_pdrop,
        attn_pdrop: t.attn_pdrop,
        initializer_range: t.initializer_range,
    };
    let kept = Unbuilt::kept(move |facts| Some(config(0, 0).kept_values(tokens(facts).ok()?.0)));
    let sizes =
        move |facts: &DataFacts| Some(config(vocab.resolve(facts).ok()?, positions.resolve(facts).ok()?));
    let unbuilt = kept.config_json(move |facts| Some(config_json(&sizes(facts)?)));
    let unbuilt =
        unbuilt.training_flops(move |facts| Some(sizes(facts)?.training_flops(tokens(facts).ok()?.0)));
    source_with(facts, unbuilt, move |facts: &DataFacts, device: &Device| {
        Ok(Gpt2::new(config(vocab.resolve(facts)?, positions.resolve(facts)?), device))
    })
}
