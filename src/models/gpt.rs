//! A small GPT as in nanoGPT: pre-LN blocks, GELU (erf), learned positions, untied head without bias. Its modules are those
//! of the PyTorch model in tests/golden.rs: `wte`, `wpe`, `h.N.{ln_1,attn.{c_attn,c_proj},ln_2,fc,proj}`, `ln_f`, `lm_head`.

use super::layers::{Affine, Embedding, LayerNorm};
use super::ops::{Activation, CausalMask, attention, dropout};
use super::{Input, Net};
use crate::spec::choice;
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Int, Tensor};

choice! {
    /// Named sizes: those of nanoGPT, and the published ones of GPT-2.
    Preset:
    /// 3 layers, 3 heads, width 48.
    Nano = "nano",
    /// 4 layers, 4 heads, width 128.
    Micro = "micro",
    /// 6 layers, 6 heads, width 192.
    Mini = "mini",
    /// 6 layers, 6 heads, width 384.
    Shakespeare = "shakespeare",
    /// 12 layers, 12 heads, width 768.
    Gpt2 = "gpt2",
    /// 24 layers, 16 heads, width 1024.
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
    /// `[batch * time, width]` to the same shape, without the last projection.
    fn forward(&self, x: Tensor<2>, batch: usize, mask: &CausalMask) -> Tensor<2> {
        attention(self.c_attn.forward(x), batch, self.heads, &self.dropout, Some(mask))
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

    fn forward(&self, x: Tensor<2>, batch: usize, mask: &CausalMask) -> Tensor<2> {
        let y = self.attn.forward(self.ln_1.forward(x.clone()), batch, mask);
        let x = self.attn.c_proj.add_to(x, y, &self.dropout);
        let y = self.fc.then(self.ln_2.forward(x.clone()), Activation::Gelu);
        self.proj.add_to(x, y, &self.dropout)
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
        let mut x = dropout((tokens + positions).reshape([batch * time, width]), &self.dropout);
        let mask = CausalMask::default();
        for block in &self.h {
            x = block.forward(x, batch, &mask);
        }
        self.lm_head.forward(self.ln_f.forward(x))
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("ln_")
    }
}
