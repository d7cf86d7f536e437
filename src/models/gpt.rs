//! A small GPT as in nanoGPT: pre-LN blocks, GELU (erf), learned positions, untied head without bias. Its modules are those
//! of the PyTorch model in tests/golden.rs: `wte`, `wpe`, `h.N.{ln_1,attn.{c_attn,c_proj},ln_2,fc,proj}`, `ln_f`, `lm_head`.

use super::cast::{in_dtype, in_f32};
use super::layers::{Affine, Embedding, LayerNorm};
use super::{Input, Net};
use crate::spec::choice;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::activation::{gelu, softmax};
use burn::tensor::{Bool, Device, Int, Tensor};

choice! {
    /// Named sizes: those of nanoGPT, and the published ones of GPT-2.
    Preset:
    Nano = "nano",
    Micro = "micro",
    Mini = "mini",
    Shakespeare = "shakespeare",
    Gpt2 = "gpt2",
    Gpt2Medium = "gpt2-medium",
}

impl Preset {
    /// Layers, heads, width.
    pub fn sizes(self) -> (usize, usize, usize) {
        match self {
            Self::Nano => (3, 3, 48),
            Self::Micro => (4, 4, 128),
            Self::Mini => (6, 6, 192),
            Self::Shakespeare => (6, 6, 384),
            Self::Gpt2 => (12, 12, 768),
            Self::Gpt2Medium => (24, 16, 1024),
        }
    }
}

/// The sizes of a GPT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptConfig {
    pub vocab_size: usize,
    pub block_size: usize,
    pub n_layer: usize,
    pub n_head: usize,
    pub n_embd: usize,
    pub dropout: f64,
}

#[derive(Module, Debug)]
struct Attention {
    c_attn: Affine,
    c_proj: Affine,
    dropout: Dropout,
    heads: usize,
}

impl Attention {
    /// `x` is `[batch * time, width]`; `hidden` is the causal mask `[time, time]`, true for keys after the query.
    fn forward(&self, x: Tensor<2>, batch: usize, hidden: &Tensor<2, Bool>) -> Tensor<2> {
        let [rows, width] = x.dims();
        let (time, head) = (rows / batch, width / self.heads);
        let qkv = self.c_attn.forward(x);
        let part = |i: usize| {
            qkv.clone()
                .slice([0..rows, i * width..(i + 1) * width])
                .reshape([batch, time, self.heads, head])
                .swap_dims(1, 2)
        };
        let scores = part(0).matmul(part(1).transpose()) * (1.0 / (head as f64).sqrt());
        let dtype = scores.dtype();
        let scores = in_f32(scores).mask_fill(hidden.clone().unsqueeze::<4>(), f32::NEG_INFINITY);
        let weights = self.dropout.forward(in_dtype(softmax(scores, 3), dtype));
        let y = weights.matmul(part(2)).swap_dims(1, 2).reshape([rows, width]);
        self.dropout.forward(self.c_proj.forward(y))
    }
}

#[derive(Module, Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attention,
    ln_2: LayerNorm,
    fc: Affine,
    proj: Affine,
    dropout: Dropout,
}

impl Block {
    fn new(c: &GptConfig, device: &Device) -> Self {
        let width = c.n_embd;
        let affine = |inputs, outputs| Affine::normal(inputs, outputs, 0.02, true, device);
        let dropout = DropoutConfig::new(c.dropout).init();
        Self {
            ln_1: LayerNorm::new(width, device),
            attn: Attention {
                c_attn: affine(width, 3 * width),
                c_proj: affine(width, width),
                dropout: dropout.clone(),
                heads: c.n_head,
            },
            ln_2: LayerNorm::new(width, device),
            fc: affine(width, 4 * width),
            proj: affine(4 * width, width),
            dropout,
        }
    }

    fn forward(&self, x: Tensor<2>, batch: usize, hidden: &Tensor<2, Bool>) -> Tensor<2> {
        let x = x.clone() + self.attn.forward(self.ln_1.forward(x), batch, hidden);
        let y = self.proj.forward(gelu(self.fc.forward(self.ln_2.forward(x.clone()))));
        x + self.dropout.forward(y)
    }
}

/// Maps tokens `[batch, time]` to logits `[batch * time, vocab]`.
#[derive(Module, Debug)]
pub struct Gpt {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
    lm_head: Affine,
    dropout: Dropout,
}

impl Gpt {
    pub fn new(c: GptConfig, device: &Device) -> Self {
        Self {
            wte: Embedding::new(c.vocab_size, c.n_embd, device),
            wpe: Embedding::new(c.block_size, c.n_embd, device),
            h: (0..c.n_layer).map(|_| Block::new(&c, device)).collect(),
            ln_f: LayerNorm::new(c.n_embd, device),
            lm_head: Affine::normal(c.n_embd, c.vocab_size, 0.02, false, device),
            dropout: DropoutConfig::new(c.dropout).init(),
        }
    }
}

impl Net for Gpt {
    fn forward(&self, input: Input) -> Tensor<2> {
        let index: Tensor<2, Int> = input.index::<2>();
        let [batch, time] = index.dims();
        let tokens = self.wte.forward(index);
        let [_, _, width] = tokens.dims();
        let positions = self.wpe.weight.val().slice([0..time, 0..width]).unsqueeze::<3>();
        let mut x = self.dropout.forward((tokens + positions).reshape([batch * time, width]));
        let hidden = Tensor::<2, Bool>::tril_mask([time, time], 0, &x.device());
        for block in &self.h {
            x = block.forward(x, batch, &hidden);
        }
        self.lm_head.forward(self.ln_f.forward(x))
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("ln_")
    }
}
