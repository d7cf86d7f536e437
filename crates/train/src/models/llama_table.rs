//! The `[model]` table of a Llama.

use super::kind::check_preset;
use super::rope::{RopeParameters, RopeType};
use super::sizes::{Size, check_input, tokens};
use super::standard::{Unbuilt, source_with};
use super::{Llama, LlamaConfig, ModelKind, ModelSource, llama_config};
use base::error::Result;
use burn::tensor::Device;
use data::DataFacts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json};
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::sync::Arc;

choice! {
    /// What the model adds to Llama, as `model_type` in Hugging Face's config.json.
    Architecture:
    /// Nothing.
    Llama = "llama",
    /// A sliding window.
    Mistral = "mistral",
    /// Biases of queries, keys and values.
    Qwen2 = "qwen2",
    /// Norms of queries and keys.
    Qwen3 = "qwen3",
}

choice! {
    /// Published models by the sizes in their config.json, and a small one.
    LlamaPreset:
    /// 2 layers, 4 heads, width 64; as many tokens and positions as the data has.
    Tiny = "tiny",
    /// 30 layers, width 576.
    Smollm2_135M = "smollm2-135m",
    /// 32 layers, width 960.
    Smollm2_360M = "smollm2-360m",
    /// 24 layers, width 2048.
    Smollm2_1_7B = "smollm2-1.7b",
    /// 16 layers, width 2048.
    Llama3_2_1B = "llama-3.2-1b",
    /// 28 layers, width 3072.
    Llama3_2_3B = "llama-3.2-3b",
    /// 32 layers, width 4096.
    Llama3_1_8B = "llama-3.1-8b",
    /// 24 layers, width 896.
    Qwen2_5_0_5B = "qwen2.5-0.5b",
    /// 28 layers, width 1536.
    Qwen2_5_1_5B = "qwen2.5-1.5b",
    /// 28 layers, width 1024.
    Qwen3_0_6B = "qwen3-0.6b",
    /// 28 layers, width 2048.
    Qwen3_1_7B = "qwen3-1.7b",
    /// 32 layers, width 4096; version 0.1.
    Mistral7B = "mistral-7b",
}

/// What a preset says of a model.
#[derive(Clone, Copy)]
struct Published {
    model_type: Architecture,
    /// None: as many as the data has.
    vocab_size: Option<usize>,
    /// Width, and that of the MLPs.
    widths: [usize; 2],
    layers: usize,
    /// Of queries, and of keys and values.
    heads: [usize; 2],
    head_dim: usize,
    eps: f64,
    /// None: as many as the data has.
    positions: Option<usize>,
    rope: RopeParameters,
    tied: bool,
    window: Option<usize>,
    std: f64,
}

impl LlamaPreset {
    fn sizes(self) -> Published {
        let llama3 = |factor| RopeParameters {
            rope_type: RopeType::Llama3,
            factor: Some(factor),
            low_freq_factor: Some(1.0),
            high_freq_factor: Some(4.0),
            original_max_position_embeddings: Some(8192),
            ..RopeParameters::plain(500_000.0)
        };
        let tiny = Published {
            model_type: Architecture::Llama,
            vocab_size: None,
            widths: [64, 172],
            layers: 2,
            heads: [4, 2],
            head_dim: 16,
            eps: 1e-5,
            positions: None,
            rope: RopeParameters::default(),
            tied: false,
            window: None,
            std: 0.02,
        };
        let smollm2 = |base| Published {
            vocab_size: Some(49_152),
            head_dim: 64,
            positions: Some(8192),
            rope: RopeParameters::plain(base),
            tied: true,
            ..tiny
        };
        let llama = |factor| Published {
            vocab_size: Some(128_256),
            head_dim: 128,
            positions: Some(131_072),
            rope: llama3(factor),
            tied: true,
            ..tiny
        };
        let qwen = |model_type, head_dim, positions| Published {
            model_type,
            vocab_size: Some(151_936),
            head_dim,
            eps: 1e-6,
            positions: Some(positions),
            rope: RopeParameters::plain(1_000_000.0),
            tied: true,
            ..tiny
        };
        let size = |widths, layers, heads, rest: Published| Published { widths, layers, heads, ..rest };
        match self {
            Self::Tiny => tiny,
            Self::Smollm2_135M => {
                Published { std: 1.0 / 24.0, ..size([576, 1536], 30, [9, 3], smollm2(100_000.0)) }
            }
            Self::Smollm2_360M => size([960, 2560], 32, [15, 5], smollm2(100_000.0)),
            Self::Smollm2_1_7B => size([2048, 8192], 24, [32, 32], smollm2(130_000.0)),
            Self::Llama3_2_1B => Published { head_dim: 64, ..size([2048, 8192], 16, [32, 8], llama(32.0)) },
            Self::Llama3_2_3B => size([3072, 8192], 28, [24, 8], llama(32.0)),
            Self::Llama3_1_8B => Published { tied: false, ..size([4096, 14_336], 32, [32, 8], llama(8.0)) },
            Self::Qwen2_5_0_5B => size([896, 4864], 24, [14, 2], qwen(Architecture::Qwen2, 64, 32_768)),
            Self::Qwen2_5_1_5B => size([1536, 8960], 28, [12, 2], qwen(Architecture::Qwen2, 128, 131_072)),
            Self::Qwen3_0_6B => size([1024, 3072], 28, [16, 8], qwen(Architecture::Qwen3, 128, 40_960)),
            Self::Qwen3_1_7B => size([2048, 6144], 28, [16, 8], qwen(Architecture::Qwen3, 128, 40_960)),
            Self::Mistral7B => Published {
                model_type: Architecture::Mistral,
                vocab_size: Some(32_000),
                head_dim: 128,
                positions: Some(32_768),
                window: Some(4096),
                ..size([4096, 14_336], 32, [32, 8], tiny)
            },
        }
    }
}

/// Llama and the models of its kind; keys and tensor names are those of Hugging Face.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct LlamaTable {
    /// Default of the other keys.
    preset: LlamaPreset,
    /// What the model adds to Llama. Default: from the preset.
    model_type: Option<Architecture>,
    /// Tokens; at least the data set's. Default: from the preset, or else from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    vocab_size: Option<usize>,
    /// Width of the embeddings. Default: from the preset.
    #[schemars(range(min = 1, max = 65_536))]
    hidden_size: Option<usize>,
    /// Width of the MLPs' hidden layer. Default: from the preset.
    #[schemars(range(min = 1, max = 1_048_576))]
    intermediate_size: Option<usize>,
    /// Transformer blocks. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    num_hidden_layers: Option<usize>,
    /// Heads of queries. Default: from the preset.
    #[schemars(range(min = 1, max = 512))]
    num_attention_heads: Option<usize>,
    /// Heads of keys and values, a divisor of `num_attention_heads`. Default: from the preset, or `num_attention_heads` if that is set.
    #[schemars(range(min = 1, max = 512))]
    num_key_value_heads: Option<usize>,
    /// Elements of a head, an even number. Default: from the preset, or `hidden_size` / `num_attention_heads` if one of these is set.
    #[schemars(range(min = 2, max = 8192))]
    head_dim: Option<usize>,
    /// Added to the mean square in the norms. Default: from the preset.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    rms_norm_eps: Option<f64>,
    /// Longest sequence; at least the data set's `block_size`, except with `dynamic` positions. Default: from the preset, or else from the data.
    #[schemars(range(min = 1, max = 16_777_216))]
    max_position_embeddings: Option<usize>,
    /// Rotary positions, in whole: `rope_theta` (10000), and for longer sequences `rope_type` (`linear`, `dynamic`, `llama3`, `yarn`) with `factor` and
    /// that type's keys. Default: from the preset.
    rope_parameters: Option<RopeParameters>,
    /// Whether the head is the transposed embedding. Default: from the preset.
    tie_word_embeddings: Option<bool>,
    /// Whether the attention's layers have biases (`qwen2` always has those of queries, keys and values, and no other).
    attention_bias: bool,
    /// Whether the MLPs' layers have biases.
    mlp_bias: bool,
    /// How many tokens a token sees, with itself. Default: from the preset.
    #[schemars(range(min = 1, max = 16_777_216))]
    sliding_window: Option<usize>,
    /// The window applies from this block on.
    #[schemars(range(min = 0, max = 512))]
    max_window_layers: usize,
    /// Dropout probability of attention weights.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1.0))]
    attention_dropout: f64,
    /// Standard deviation of the initial weights. Default: from the preset.
    #[schemars(range(min = 0.0))]
    initializer_range: Option<f64>,
}

/// Reads the table, and config.json.
pub(super) struct LlamaKind;

impl ModelKind for LlamaKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        llama(fields, facts)
    }

    fn keys_of_config(&self, config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        llama_config::keys(config)
    }
}

fn llama(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, tokens(facts));
    let t: LlamaTable = fields.config();
    let preset = t.preset.sizes();
    let model_type = fields.or_default("model_type", t.model_type, preset.model_type);
    let hidden_size = fields.or_default("hidden_size", t.hidden_size, preset.widths[0]);
    let intermediate_size = fields.or_default("intermediate_size", t.intermediate_size, preset.widths[1]);
    let num_hidden_layers = fields.or_default("num_hidden_layers", t.num_hidden_layers, preset.layers);
    let num_attention_heads =
        fields.or_default("num_attention_heads", t.num_attention_heads, preset.heads[0]);
    let shared = if t.num_attention_heads.is_some() { num_attention_heads } else { preset.heads[1] };
    let num_key_value_heads = fields.or_default("num_key_value_heads", t.num_key_value_heads, shared);
    let divides = t.hidden_size.is_some() || t.num_attention_heads.is_some();
    let head_dim = if divides { hidden_size / num_attention_heads } else { preset.head_dim };
    let head_dim = fields.or_default("head_dim", t.head_dim, head_dim);
    let rms_norm_eps = fields.or_default("rms_norm_eps", t.rms_norm_eps, preset.eps);
    let rope_parameters = fields.or_default("rope_parameters", t.rope_parameters, preset.rope);
    let tie_word_embeddings = fields.or_default("tie_word_embeddings", t.tie_word_embeddings, preset.tied);
    let initializer_range = fields.or_default("initializer_range", t.initializer_range, preset.std);
    let sliding_window = match (t.sliding_window, preset.window) {
        (None, Some(window)) if fields.inherits_from().is_none() => {
            Some(fields.or_default("sliding_window", None, window))
        }
        (window, _) => window,
    };
    if sliding_window.is_none() && t.max_window_layers > 0 {
        fields.problem("max_window_layers", "has no effect without `sliding_window`");
    }

    let read = (model_type, hidden_size, intermediate_size, num_hidden_layers);
    let has_its_sizes = read == (preset.model_type, preset.widths[0], preset.widths[1], preset.layers);
    check_preset(fields, t.preset == LlamaPreset::Tiny || has_its_sizes);
    if !num_attention_heads.is_multiple_of(num_key_value_heads) {
        let what =
            format!("must divide num_attention_heads = {num_attention_heads}, found {num_key_value_heads}");
        fields.problem("num_key_value_heads", what);
    }
    if divides && t.head_dim.is_none() && !hidden_size.is_multiple_of(num_attention_heads) {
        let what = format!(
            "must be a multiple of num_attention_heads = {num_attention_heads} if `head_dim` is not set, found {hidden_size}"
        );
        fields.problem("hidden_size", what);
    } else if !head_dim.is_multiple_of(2) {
        fields.problem("head_dim", format!("must be even, found {head_dim}"));
    }
    if let Some(problem) = rope_parameters.problem() {
        fields.problem("rope_parameters", problem);
    }
    if head_dim <= 2 && rope_parameters.rope_type == RopeType::Dynamic {
        fields.problem(
            "rope_parameters",
            format!("`dynamic` needs heads of 4 elements or more, found {head_dim}"),
        );
    }
    if t.attention_bias && model_type == Architecture::Qwen2 {
        fields.problem("attention_bias", "has no effect with `model_type = \"qwen2\"`".to_owned());
    }

    // Recorded, as all that a preset gives.
    let published = |key, given: Option<usize>, preset: Option<usize>| match (given, preset) {
        (None, Some(size)) => Some(fields.or_default(key, None, size)),
        (given, _) => given,
    };
    let longest = published("max_position_embeddings", t.max_position_embeddings, preset.positions);
    let vocab = ("vocab_size", published("vocab_size", t.vocab_size, preset.vocab_size));
    let vocab = Size::at_least(fields, facts, vocab, |facts| Ok(tokens(facts)?.1));
    let least: fn(&DataFacts) -> Result<usize> = match (rope_parameters.rope_type, longest) {
        (RopeType::Dynamic, Some(_)) => |_| Ok(1),
        _ => |facts| Ok(tokens(facts)?.0),
    };
    let positions = Size::at_least(fields, facts, ("max_position_embeddings", longest), least);
    let config = move |vocab_size, max_position_embeddings| LlamaConfig {
        vocab_size,
        hidden_size,
        intermediate_size,
        num_hidden_layers,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        rms_norm_eps,
        max_position_embeddings,
        rope_parameters,
        tie_word_embeddings,
        qkv_bias: t.attention_bias || model_type == Architecture::Qwen2,
        output_bias: t.attention_bias,
        mlp_bias: t.mlp_bias,
        qk_norm: model_type == Architecture::Qwen3,
        sliding_window,
        max_window_layers: t.max_window_layers,
        attention_dropout: t.attention_dropout,
        initializer_range,
    };
    let kept = Unbuilt::kept(move |facts| Some(config(0, 0).kept_values(tokens(facts).ok()?.0)));
    let sizes =
        move |facts: &DataFacts| Some(config(vocab.resolve(facts).ok()?, positions.resolve(facts).ok()?));
    let unbuilt = kept.config_json(move |facts| llama_config::config_json(&sizes(facts)?, model_type));
    let unbuilt =
        unbuilt.training_flops(move |facts| Some(sizes(facts)?.training_flops(tokens(facts).ok()?.0)));
    source_with(facts, unbuilt, move |facts: &DataFacts, device: &Device| {
        Ok(Llama::new(config(vocab.resolve(facts)?, positions.resolve(facts)?), device))
    })
}
