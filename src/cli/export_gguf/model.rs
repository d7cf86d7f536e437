//! The models that llama.cpp computes as ddp-run does: their hyperparameters and the names of their tensors there.

use super::file::{Metadata, Value};
use super::rope;
use base::error::{Error, Result};
use serde_json::{Map, Value as Json};

/// A table of Hugging Face's config.json.
pub(super) struct Config<'a>(pub &'a Map<String, Json>);

impl<'a> Config<'a> {
    fn get<T>(&self, key: &str, read: impl Fn(&'a Json) -> Option<T>) -> Result<T> {
        let read = self.0.get(key).and_then(read);
        read.ok_or_else(|| Error::internal(format!("config.json of the model lacks `{key}`")))
    }

    pub fn count(&self, key: &str) -> Result<u32> {
        self.get(key, |value| u32::try_from(value.as_u64()?).ok())
    }

    pub fn float(&self, key: &str) -> Result<f64> {
        self.get(key, Json::as_f64)
    }

    pub fn text(&self, key: &str) -> Result<&'a str> {
        self.get(key, Json::as_str)
    }

    pub fn table(&self, key: &str) -> Result<Self> {
        self.get(key, Json::as_object).map(Config)
    }

    pub fn flag(&self, key: &str) -> Option<bool> {
        self.0.get(key)?.as_bool()
    }
}

/// The error for what llama.cpp computes otherwise, or not at all.
pub(super) fn refused(why: impl Into<String>) -> Error {
    Error::spec(format!("cannot export to GGUF: {}", why.into()))
        .hint("`--hf DIR` and a .safetensors file take every model")
}

/// How the rows of a matrix, or the elements of a bias, are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrangement {
    Same,
    /// Rows and columns exchanged.
    Transposed,
    /// In each of so many heads, the rows of a rotated pair follow each other. Hugging Face's has the first of all pairs, then the second.
    Pairs(usize),
}

/// A model in terms of llama.cpp.
#[derive(Debug)]
pub(super) struct Architecture {
    /// `general.architecture`.
    pub name: &'static str,
    /// The keys that begin with its name.
    pub metadata: Metadata,
    /// Divisors of the rotary frequencies: the tensor `rope_freqs.weight`.
    pub rope_factors: Option<Vec<f32>>,
    /// Rows of the embedding.
    pub vocab_size: usize,
    is_tied: bool,
    /// Of queries, and of keys.
    heads: [usize; 2],
}

impl Architecture {
    /// # Errors
    /// Exit 78: llama.cpp computes the model otherwise, or not at all.
    pub fn of(config: &Map<String, Json>) -> Result<Self> {
        let config = Config(config);
        match config.text("model_type")? {
            "llama" | "mistral" => llama(&config, "llama"),
            "qwen2" => llama(&config, "qwen2"),
            "qwen3" => llama(&config, "qwen3"),
            "gpt2" => gpt2(&config),
            other => Err(refused(format!("llama.cpp has no counterpart of `{other}` as ddp-run trains it"))),
        }
    }

    /// The name of a tensor in GGUF, and how it is stored there; `None` for what the file does not have.
    ///
    /// # Errors
    /// The name is none of the model's.
    pub fn tensor(&self, name: &str) -> Result<Option<(String, Arrangement)>> {
        let unknown = || Error::internal(format!("tensor `{name}` has no name in GGUF"));
        if name == "lm_head.weight" && self.is_tied {
            return Ok(None);
        }
        let (stem, kind) = name.rsplit_once('.').ok_or_else(unknown)?;
        let table: &[(&str, &str)] = if self.name == "gpt2" { &GPT2 } else { &LLAMA };
        let find = |part: &str| table.iter().find(|(own, _)| *own == part).map(|(_, theirs)| *theirs);
        let in_block = || {
            let rest = stem.strip_prefix("model.layers.").or_else(|| stem.strip_prefix("transformer.h."))?;
            let (number, part) = rest.split_once('.')?;
            number.parse::<u32>().ok()?;
            Some(format!("blk.{number}.{}", find(part)?))
        };
        let whole = find(stem).map(str::to_owned).or_else(in_block).ok_or_else(unknown)?;
        let [queries, keys] = self.heads;
        let arrangement = match (self.name, stem.rsplit('.').next()) {
            // `Conv1D` of transformers.
            ("gpt2", Some("c_attn" | "c_proj" | "c_fc")) if kind == "weight" => Arrangement::Transposed,
            ("llama", Some("q_proj")) => Arrangement::Pairs(queries),
            ("llama", Some("k_proj")) => Arrangement::Pairs(keys),
            _ => Arrangement::Same,
        };
        Ok(Some((format!("{whole}.{kind}"), arrangement)))
    }
}

const GPT2: [(&str, &str); 10] = [
    ("transformer.wte", "token_embd"),
    ("transformer.wpe", "position_embd"),
    ("transformer.ln_f", "output_norm"),
    ("lm_head", "output"),
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

const LLAMA: [(&str, &str); 14] = [
    ("model.embed_tokens", "token_embd"),
    ("model.norm", "output_norm"),
    ("lm_head", "output"),
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

fn gpt2(config: &Config<'_>) -> Result<Architecture> {
    match config.text("activation_function")? {
        "gelu_new" | "gelu_pytorch_tanh" => {}
        other => {
            let why = format!("the model's activation is `{other}`, and llama.cpp's gpt2 has GELU by tanh");
            return Err(refused(why));
        }
    }
    let mut metadata = Metadata::new();
    for (theirs, own) in [
        ("context_length", "n_positions"),
        ("embedding_length", "n_embd"),
        ("block_count", "n_layer"),
        ("feed_forward_length", "n_inner"),
        ("attention.head_count", "n_head"),
        ("vocab_size", "vocab_size"),
    ] {
        metadata.push((format!("gpt2.{theirs}"), Value::U32(config.count(own)?)));
    }
    let epsilon = config.float("layer_norm_epsilon")? as f32;
    metadata.push(("gpt2.attention.layer_norm_epsilon".to_owned(), Value::F32(epsilon)));
    Ok(Architecture {
        name: "gpt2",
        metadata,
        rope_factors: None,
        vocab_size: config.count("vocab_size")? as usize,
        is_tied: config.flag("tie_word_embeddings").unwrap_or(true),
        heads: [0, 0],
    })
}

fn llama(config: &Config<'_>, name: &'static str) -> Result<Architecture> {
    let [width, heads, keys, head_dim, context] =
        ["hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"]
            .map(|key| config.count(key));
    let (width, heads, keys, head_dim, context) = (width?, heads?, keys?, head_dim?, context?);
    let is_usual = heads * head_dim == width;
    if name == "qwen2" && !is_usual {
        let why = "llama.cpp's qwen2 needs `head_dim` = `hidden_size` / `num_attention_heads`";
        return Err(refused(why));
    }
    if name == "qwen3" && config.flag("attention_bias") == Some(true) {
        return Err(refused("llama.cpp's qwen3 has no biases in the attention's last layer"));
    }
    if let Ok(window) = config.count("sliding_window")
        && window < context
    {
        return Err(refused(format!(
            "llama.cpp's {name} has no sliding window, and the model's is {window} of {context} tokens"
        )));
    }
    let mut metadata = Metadata::new();
    let mut add = |key: &str, value: Value| metadata.push((format!("{name}.{key}"), value));
    add("context_length", context.into());
    add("embedding_length", width.into());
    add("block_count", config.count("num_hidden_layers")?.into());
    add("feed_forward_length", config.count("intermediate_size")?.into());
    add("attention.head_count", heads.into());
    add("attention.head_count_kv", keys.into());
    add("attention.layer_norm_rms_epsilon", (config.float("rms_norm_eps")? as f32).into());
    if !is_usual {
        add("attention.key_length", head_dim.into());
        add("attention.value_length", head_dim.into());
    }
    add("rope.dimension_count", head_dim.into());
    add("vocab_size", config.count("vocab_size")?.into());
    metadata.extend(rope::metadata(config, name)?);
    Ok(Architecture {
        name,
        metadata,
        rope_factors: rope::factors(config, head_dim)?,
        vocab_size: config.count("vocab_size")? as usize,
        is_tied: config.flag("tie_word_embeddings").unwrap_or(false),
        heads: [heads as usize, keys as usize],
    })
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
