//! Llama and the models of its kind (Touvron et al., 2023, arXiv:2302.13971; Mistral, Qwen2, Qwen3), with the modules, names and
//! values of Hugging Face's transformers: pre-norm blocks, rotary positions, grouped-query attention, SwiGLU.

use super::decoder::{Decoder, KvCache, logits};
use super::flops::training_flops;
use super::layers::{Affine, Embedding, RmsNorm};
use super::ops::{Heads, KeysAndValues, Mask, Sees, attention, attention_after, rotary, swiglu};
use super::rope::{Rope, RopeParameters};
use super::{Documents, Input, Net};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Int, Tensor};

/// The sizes of a Llama, by their names in config.json, and what its architecture adds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LlamaConfig {
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// Width of the embeddings and of the residual stream.
    pub hidden_size: usize,
    /// Width of the MLPs' hidden layer.
    pub intermediate_size: usize,
    /// Number of transformer blocks.
    pub num_hidden_layers: usize,
    /// Heads of queries.
    pub num_attention_heads: usize,
    /// Heads of keys and values; divides `num_attention_heads`.
    pub num_key_value_heads: usize,
    /// Elements of a head; even.
    pub head_dim: usize,
    /// Added to the mean square in the norms.
    pub rms_norm_eps: f64,
    /// Longest sequence, in tokens: rotary positions are scaled by it.
    pub max_position_embeddings: usize,
    /// Rotary positions.
    pub rope_parameters: RopeParameters,
    /// The head is the transposed embedding.
    pub tie_word_embeddings: bool,
    /// Queries, keys and values have biases.
    pub qkv_bias: bool,
    /// The attention's output projection has a bias.
    pub output_bias: bool,
    /// The MLPs' layers have biases.
    pub mlp_bias: bool,
    /// Queries and keys are normalised, each head by itself.
    pub qk_norm: bool,
    /// Tokens that a token sees, with itself.
    pub sliding_window: Option<usize>,
    /// Blocks before this one see all earlier tokens.
    pub max_window_layers: usize,
    /// Dropout probability of attention weights.
    pub attention_dropout: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
}

impl LlamaConfig {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of a sequence of `tokens`: in each block the inputs of its norms, of
    /// its attention, of SwiGLU and of its linear layers; then the inputs of the last norm and of the head.
    pub fn kept_values(&self, tokens: usize) -> usize {
        let queries_and_keys = (self.num_attention_heads + self.num_key_value_heads) * self.head_dim;
        let qkv = queries_and_keys + self.num_key_value_heads * self.head_dim;
        let normalised = if self.qk_norm { queries_and_keys } else { 0 };
        let attention = qkv + normalised + self.num_attention_heads * self.head_dim;
        let block = 4 * self.hidden_size + attention + 3 * self.intermediate_size;
        (self.num_hidden_layers * block + 2 * self.hidden_size).saturating_mul(tokens)
    }

    /// [`ModelSource::training_flops`](super::ModelSource::training_flops) of a sequence of `tokens`.
    pub fn training_flops(&self, tokens: usize) -> f64 {
        let [q, kv] = [self.num_attention_heads, self.num_key_value_heads].map(|heads| heads * self.head_dim);
        let block = self.hidden_size * (2 * q + 2 * kv + 3 * self.intermediate_size);
        let weights = self.num_hidden_layers * block + self.vocab_size * self.hidden_size;
        let seen = (0..self.num_hidden_layers).map(|layer| match self.sees(layer) {
            Sees::Window(width) => width,
            _ => tokens,
        });
        training_flops(weights, tokens, q, seen)
    }

    fn heads(&self) -> Heads {
        Heads { queries: self.num_attention_heads, keys: self.num_key_value_heads }
    }

    fn sees(&self, layer: usize) -> Sees {
        match self.sliding_window {
            Some(width) if layer >= self.max_window_layers => Sees::Window(width),
            _ => Sees::Past,
        }
    }
}

#[derive(Module, Debug)]
struct SelfAttention {
    q_proj: Affine,
    k_proj: Affine,
    v_proj: Affine,
    o_proj: Affine,
    q_norm: Option<RmsNorm>,
    k_norm: Option<RmsNorm>,
    dropout: Dropout,
    #[module(skip)]
    heads: Heads,
    #[module(skip)]
    sees: Sees,
}

impl SelfAttention {
    fn new(c: &LlamaConfig, layer: usize, device: &Device) -> Self {
        let affine =
            |inputs, outputs, bias| Affine::normal(inputs, outputs, c.initializer_range, bias, device);
        let [q, kv] = [c.num_attention_heads, c.num_key_value_heads].map(|heads| heads * c.head_dim);
        let norm = || c.qk_norm.then(|| RmsNorm::new(c.head_dim, c.rms_norm_eps, device));
        Self {
            q_proj: affine(c.hidden_size, q, c.qkv_bias),
            k_proj: affine(c.hidden_size, kv, c.qkv_bias),
            v_proj: affine(c.hidden_size, kv, c.qkv_bias),
            o_proj: affine(q, c.hidden_size, c.output_bias),
            q_norm: norm(),
            k_norm: norm(),
            dropout: DropoutConfig::new(c.attention_dropout).init(),
            heads: c.heads(),
            sees: c.sees(layer),
        }
    }

    /// Queries, keys and values of rows at the positions of `table`.
    fn qkv(&self, x: Tensor<2>, table: &Tensor<2>) -> Tensor<2> {
        let part = |layer: &Affine, norm: &Option<RmsNorm>| {
            let y = layer.forward(x.clone());
            let Some(norm) = norm else { return y };
            let ([rows, width], [head]) = (y.dims(), norm.weight.dims());
            norm.forward(y.reshape([rows * (width / head), head])).reshape([rows, width])
        };
        let parts =
            [part(&self.q_proj, &self.q_norm), part(&self.k_proj, &self.k_norm), part(&self.v_proj, &None)];
        rotary(parts, table, self.heads)
    }
}

#[derive(Module, Debug)]
struct Mlp {
    gate_proj: Affine,
    up_proj: Affine,
    down_proj: Affine,
}

#[derive(Module, Debug)]
struct Block {
    self_attn: SelfAttention,
    mlp: Mlp,
    input_layernorm: RmsNorm,
    post_attention_layernorm: RmsNorm,
}

impl Block {
    fn new(c: &LlamaConfig, layer: usize, device: &Device) -> Self {
        let affine =
            |inputs, outputs| Affine::normal(inputs, outputs, c.initializer_range, c.mlp_bias, device);
        let norm = || RmsNorm::new(c.hidden_size, c.rms_norm_eps, device);
        Self {
            self_attn: SelfAttention::new(c, layer, device),
            mlp: Mlp {
                gate_proj: affine(c.hidden_size, c.intermediate_size),
                up_proj: affine(c.hidden_size, c.intermediate_size),
                down_proj: affine(c.intermediate_size, c.hidden_size),
            },
            input_layernorm: norm(),
            post_attention_layernorm: norm(),
        }
    }

    /// `[batch * time, hidden]` to the same shape.
    fn forward(&self, x: Tensor<2>, batch: usize, table: &Tensor<2>, masks: &Masks) -> Tensor<2> {
        let attn = &self.self_attn;
        let qkv = attn.qkv(self.input_layernorm.forward(x.clone()), table);
        let y = attention(qkv, batch, attn.heads, &attn.dropout, masks.of(attn.sees));
        self.rest(x, y)
    }

    /// As [`Block::forward`], of the positions of one sequence that follow those in `before`.
    fn extend(&self, x: Tensor<2>, table: &Tensor<2>, before: &mut KeysAndValues) -> Tensor<2> {
        let attn = &self.self_attn;
        let qkv = attn.qkv(self.input_layernorm.forward(x.clone()), table);
        let y = attention_after(qkv, attn.heads, before, attn.sees);
        self.rest(x, y)
    }

    /// What follows the attention `y`.
    fn rest(&self, x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
        let x = self.self_attn.o_proj.onto(x, y);
        let y = self.post_attention_layernorm.forward(x.clone());
        let y = swiglu(self.mlp.gate_proj.forward(y.clone()), self.mlp.up_proj.forward(y));
        self.mlp.down_proj.onto(x, y)
    }
}

/// The masks of one pass, with and without a window.
struct Masks {
    past: Mask,
    window: Option<(Sees, Mask)>,
}

impl Masks {
    fn new(window: Option<usize>, documents: Option<&Documents>) -> Self {
        let mask = |sees| Mask::new(sees).within(documents);
        let window = window.map(Sees::Window);
        Self { past: mask(Sees::Past), window: window.map(|sees| (sees, mask(sees))) }
    }

    fn of(&self, sees: Sees) -> &Mask {
        match &self.window {
            Some((window, mask)) if *window == sees => mask,
            _ => &self.past,
        }
    }
}

#[derive(Module, Debug)]
struct Body {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
}

/// Maps tokens `[batch, time]` to logits `[batch * time, vocab]`.
#[derive(Module, Debug)]
pub struct Llama {
    model: Body,
    /// Absent if it is the embedding.
    lm_head: Option<Affine>,
    #[module(skip)]
    rope: Rope,
    #[module(skip)]
    window: Option<usize>,
}

impl Llama {
    /// Builds the network on `device`; weights and embeddings are drawn from N(0, `initializer_range`).
    pub fn new(c: LlamaConfig, device: &Device) -> Self {
        let (vocab, hidden, std) = (c.vocab_size, c.hidden_size, c.initializer_range);
        Self {
            model: Body {
                embed_tokens: Embedding::new(vocab, hidden, std, device),
                layers: (0..c.num_hidden_layers).map(|layer| Block::new(&c, layer, device)).collect(),
                norm: RmsNorm::new(hidden, c.rms_norm_eps, device),
            },
            lm_head: (!c.tie_word_embeddings).then(|| Affine::normal(hidden, vocab, std, false, device)),
            rope: Rope {
                parameters: c.rope_parameters,
                head_dim: c.head_dim,
                max_position_embeddings: c.max_position_embeddings,
            },
            window: c.sliding_window,
        }
    }
}

impl Decoder for Llama {
    fn extend(&self, tokens: Tensor<2, Int>, cache: &mut KvCache) -> Tensor<2> {
        let [_, new] = tokens.dims();
        let device = tokens.device();
        let x = self.model.embed_tokens.forward(tokens);
        let [_, _, width] = x.dims();
        let (positions, layers) = cache.grow(new, self.model.layers.len());
        let table = self.rope.table(positions, &device);
        let mut x = x.reshape([new, width]);
        for (block, before) in self.model.layers.iter().zip(layers) {
            x = block.extend(x, &table, before);
        }
        logits(self.model.norm.forward(x.slice([new - 1..new, 0..width])), self.head())
    }

    fn hidden(&self, input: Input) -> Tensor<2> {
        let documents = input.documents();
        let index: Tensor<2, Int> = input.index::<2>();
        let ([batch, time], device) = (index.dims(), index.device());
        let x = self.model.embed_tokens.forward(index);
        let [_, _, width] = x.dims();
        let mut x = x.reshape([batch * time, width]);
        let table = match &documents {
            Some(documents) => self.rope.table_of(documents, &device),
            None => self.rope.table(0..time, &device),
        };
        let masks = Masks::new(self.window, documents.as_ref());
        for block in &self.model.layers {
            x = block.forward(x, batch, &table, &masks);
        }
        self.model.norm.forward(x)
    }

    fn head(&self) -> Tensor<2> {
        match &self.lm_head {
            Some(head) => head.weight.val(),
            None => self.model.embed_tokens.weight.val(),
        }
    }
}

impl Net for Llama {
    fn forward(&self, input: Input) -> Tensor<2> {
        logits(self.hidden(input), self.head())
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("norm")
    }
}

#[cfg(test)]
#[path = "llama_tests.rs"]
mod tests;
