//! GPT-2 as published (Radford et al., 2019), with the modules, names, layouts and values of Hugging Face's transformers: learned
//! positions, pre-norm blocks, GELU by tanh, and a head that is the embedding.

use super::decoder::{Decoder, KvCache, logits};
use super::flops::training_flops;
use super::layers::{Conv1D, Embedding, LayerNorm};
use super::ops::{Activation, Heads, Mask, Sees, attention, attention_after, dropout};
use super::{Input, Net};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Int, Tensor};

/// The sizes of a GPT-2, by their names in config.json.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gpt2Config {
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// Longest sequence, in tokens: the number of learnt positions.
    pub n_positions: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Attention heads per block; divides `n_embd`.
    pub n_head: usize,
    /// Width of the embeddings and of the residual stream.
    pub n_embd: usize,
    /// Width of the MLPs' hidden layer.
    pub n_inner: usize,
    /// Added to the variance in the norms.
    pub layer_norm_epsilon: f64,
    /// Dropout probability of the residual branches.
    pub resid_pdrop: f64,
    /// Dropout probability of the embeddings.
    pub embd_pdrop: f64,
    /// Dropout probability of attention weights.
    pub attn_pdrop: f64,
    /// Standard deviation of the initial weights.
    pub initializer_range: f64,
}

impl Gpt2Config {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of a sequence of `tokens`: in each block the inputs of its norms, its
    /// attention and its linear layers, and the slopes of GELU; then the inputs of the last norm and of the head.
    pub fn kept_values(&self, tokens: usize) -> usize {
        let block = 8 * self.n_embd + 2 * self.n_inner;
        (self.n_layer * block + 2 * self.n_embd).saturating_mul(tokens)
    }

    /// [`ModelSource::training_flops`](super::ModelSource::training_flops) of a sequence of `tokens`.
    pub fn training_flops(&self, tokens: usize) -> f64 {
        let block = 4 * self.n_embd.pow(2) + 2 * self.n_embd * self.n_inner;
        let weights = self.n_layer * block + self.vocab_size * self.n_embd;
        training_flops(weights, tokens, self.n_embd, std::iter::repeat_n(tokens, self.n_layer))
    }
}

#[derive(Module, Debug)]
struct Attention {
    c_attn: Conv1D,
    c_proj: Conv1D,
    dropout: Dropout,
    heads: usize,
}

#[derive(Module, Debug)]
struct Mlp {
    c_fc: Conv1D,
    c_proj: Conv1D,
}

#[derive(Module, Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    mlp: Mlp,
    dropout: Dropout,
}

impl Block {
    fn new(c: &Gpt2Config, device: &Device) -> Self {
        let (width, std) = (c.n_embd, c.initializer_range);
        // So that the residual stream does not grow with the number of blocks.
        let of_branch = std / (2.0 * c.n_layer as f64).sqrt();
        let norm = || LayerNorm::with_eps(width, c.layer_norm_epsilon, device);
        Self {
            ln_1: norm(),
            attn: Attention {
                c_attn: Conv1D::normal(width, 3 * width, std, device),
                c_proj: Conv1D::normal(width, width, of_branch, device),
                dropout: DropoutConfig::new(c.attn_pdrop).init(),
                heads: c.n_head,
            },
            ln_2: norm(),
            mlp: Mlp {
                c_fc: Conv1D::normal(width, c.n_inner, std, device),
                c_proj: Conv1D::normal(c.n_inner, width, of_branch, device),
            },
            dropout: DropoutConfig::new(c.resid_pdrop).init(),
        }
    }

    fn qkv(&self, x: Tensor<2>) -> Tensor<2> {
        self.attn.c_attn.then(self.ln_1.forward(x), Activation::None)
    }

    /// What follows the attention `y`.
    fn rest(&self, x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
        let x = self.attn.c_proj.add_to(x, y, &self.dropout);
        let y = self.mlp.c_fc.then(self.ln_2.forward(x.clone()), Activation::GeluTanh);
        self.mlp.c_proj.add_to(x, y, &self.dropout)
    }
}

#[derive(Module, Debug)]
struct Transformer {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

/// Maps tokens `[batch, time]` to logits `[batch * time, vocab]`.
#[derive(Module, Debug)]
pub struct Gpt2 {
    transformer: Transformer,
    dropout: Dropout,
}

impl Gpt2 {
    /// Builds the network on `device`; weights and embeddings are drawn from N(0, `initializer_range`), the last layers of the branches
    /// from a narrower one.
    pub fn new(c: Gpt2Config, device: &Device) -> Self {
        let embedding = |rows| Embedding::new(rows, c.n_embd, c.initializer_range, device);
        Self {
            transformer: Transformer {
                wte: embedding(c.vocab_size),
                wpe: embedding(c.n_positions),
                h: (0..c.n_layer).map(|_| Block::new(&c, device)).collect(),
                ln_f: LayerNorm::with_eps(c.n_embd, c.layer_norm_epsilon, device),
            },
            dropout: DropoutConfig::new(c.embd_pdrop).init(),
        }
    }
}

impl Decoder for Gpt2 {
    fn extend(&self, tokens: Tensor<2, Int>, cache: &mut KvCache) -> Tensor<2> {
        let Transformer { wte, wpe, h, ln_f } = &self.transformer;
        let ([_, new], [_, width]) = (tokens.dims(), wte.weight.dims());
        let (positions, layers) = cache.grow(new, h.len());
        let mut x = wte.forward(tokens).reshape([new, width]) + wpe.weight.val().slice([positions, 0..width]);
        for (block, before) in h.iter().zip(layers) {
            let y = attention_after(block.qkv(x.clone()), Heads::equal(block.attn.heads), before, Sees::Past);
            x = block.rest(x, y);
        }
        logits(ln_f.forward(x.slice([new - 1..new, 0..width])), self.head())
    }

    fn hidden(&self, input: Input) -> Tensor<2> {
        let Transformer { wte, wpe, h, ln_f } = &self.transformer;
        let documents = input.documents();
        let index: Tensor<2, Int> = input.index::<2>();
        let ([batch, time], [_, width]) = (index.dims(), wte.weight.dims());
        let positions = wpe.of_positions(time, documents.as_ref());
        let x = (wte.forward(index) + positions).reshape([batch * time, width]);
        let (mut x, mask) = (dropout(x, &self.dropout), Mask::new(Sees::Past).within(documents.as_ref()));
        for block in h {
            let heads = Heads::equal(block.attn.heads);
            let y = attention(block.qkv(x.clone()), batch, heads, &block.attn.dropout, &mask);
            x = block.rest(x, y);
        }
        ln_f.forward(x)
    }

    fn head(&self) -> Tensor<2> {
        self.transformer.wte.weight.val()
    }
}

impl Net for Gpt2 {
    fn forward(&self, input: Input) -> Tensor<2> {
        logits(self.hidden(input), self.head())
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("ln_")
    }
}

#[cfg(test)]
#[path = "gpt2_tests.rs"]
mod tests;
