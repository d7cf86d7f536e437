//! The `[model]` table of a GPT, and its config.json: that of a GPT-2 with another GELU and a head of its own.

use super::kind::{check_preset, expect};
use super::sizes::{Size, check_input, tokens};
use super::standard::{Unbuilt, source_with};
use super::{Gpt, GptConfig, ModelKind, ModelSource, Preset};
use burn::tensor::Device;
use checkpoint::HubTensor;
use data::DataFacts;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use smart_default::SmartDefault;
use spec::Fields;
use std::sync::Arc;

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

/// Reads the table, and config.json.
pub(super) struct GptKind;

impl ModelKind for GptKind {
    fn configure(&self, fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
        gpt(fields, facts)
    }

    /// Those of a folder that `ddp-run export --hf` wrote. The published GPT-2 is another model, of which the spec may take what fits.
    fn keys_of_config(&self, config: &Map<String, Json>) -> Result<Map<String, Json>, String> {
        let is = |key: &str, expected: Json| config.get(key) == Some(&expected);
        let is_own = is("model_type", json!("gpt2")) && is("activation_function", json!("gelu"));
        if !is_own || !is("tie_word_embeddings", json!(false)) {
            return Ok(Map::new());
        }
        for (key, expected) in [
            ("layer_norm_epsilon", json!(1e-5)),
            ("scale_attn_weights", json!(true)),
            ("scale_attn_by_inverse_layer_idx", json!(false)),
            ("add_cross_attention", json!(false)),
        ] {
            expect(key, &expected, config.get(key))?;
        }
        let keys = [
            ("n_layer", "n_layer"),
            ("n_head", "n_head"),
            ("n_embd", "n_embd"),
            ("n_positions", "block_size"),
            ("vocab_size", "vocab_size"),
        ];
        let found = |(theirs, own): (&str, &str)| Some((own.to_owned(), config.get(theirs)?.clone()));
        Ok(keys.into_iter().filter_map(found).collect())
    }
}

/// Without the tokens that begin and end a text.
fn config_json(config: &GptConfig) -> Map<String, Json> {
    let json = json!({
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.block_size,
        "n_layer": config.n_layer,
        "n_head": config.n_head,
        "n_embd": config.n_embd,
        // By erf.
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-5,
        "resid_pdrop": config.dropout,
        "embd_pdrop": config.dropout,
        "attn_pdrop": config.dropout,
        "tie_word_embeddings": false,
    });
    json.as_object().cloned().unwrap_or_default()
}

/// transformers has the matrices of GPT-2's linear layers as `[in, out]`.
fn hub_tensor(name: &str) -> HubTensor {
    if name.starts_with("lm_head.") {
        return HubTensor::same(name);
    }
    let hub = format!("transformer.{}", name.replace(".fc.", ".mlp.c_fc.").replace(".proj.", ".mlp.c_proj."));
    let is_linear = [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"].iter().any(|end| hub.ends_with(end));
    if is_linear { HubTensor::Transposed(hub) } else { HubTensor::Same(hub) }
}

fn gpt(fields: &mut Fields<'_>, facts: &DataFacts) -> Arc<dyn ModelSource> {
    check_input(fields, facts, tokens(facts));
    let table: GptTable = fields.config();
    let ((layers, heads, width), dropout) = (table.preset.sizes(), table.dropout);
    let n_layer = fields.or_default("n_layer", table.n_layer, layers);
    let n_head = fields.or_default("n_head", table.n_head, heads);
    let n_embd = fields.or_default("n_embd", table.n_embd, width);
    let has_its_sizes = (n_layer, n_head, n_embd) == (layers, heads, width);
    check_preset(fields, table.preset == Preset::Micro || has_its_sizes);
    let (block, vocab) = (("block_size", table.block_size), ("vocab_size", table.vocab_size));
    let block = Size::at_least(fields, facts, block, |facts| Ok(tokens(facts)?.0));
    let vocab = Size::at_least(fields, facts, vocab, |facts| Ok(tokens(facts)?.1));
    if !n_embd.is_multiple_of(n_head) {
        fields.problem("n_embd", format!("must be a multiple of n_head = {n_head}, found {n_embd}"));
    }
    let config =
        move |block_size, vocab_size| GptConfig { vocab_size, block_size, n_layer, n_head, n_embd, dropout };
    let kept = Unbuilt::kept(move |facts| Some(config(tokens(facts).ok()?.0, 0).kept_values()));
    let sizes = move |facts: &DataFacts| Some(config(block.resolve(facts).ok()?, vocab.resolve(facts).ok()?));
    let unbuilt = kept.config_json(move |facts| Some(config_json(&sizes(facts)?)));
    let unbuilt =
        unbuilt.training_flops(move |facts| Some(sizes(facts)?.training_flops(tokens(facts).ok()?.0)));
    source_with(facts, unbuilt.hub_tensor(hub_tensor), move |facts: &DataFacts, device: &Device| {
        Ok(Gpt::new(config(block.resolve(facts)?, vocab.resolve(facts)?), device))
    })
}
