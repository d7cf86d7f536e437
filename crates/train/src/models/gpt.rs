//! A small GPT as in nanoGPT: pre-LN blocks, GELU (erf), learned positions, untied head without bias. Its modules are those
//! of the PyTorch model in tests/features/golden.rs: `wte`, `wpe`, `h.N.{ln_1,attn.{c_attn,c_proj},ln_2,fc,proj}`, `ln_f`, `lm_head`.

use super::decoder::{Decoder, KvCache, logits};
use super::flops::training_flops;
use super::layers::{Affine, Embedding, LayerNorm};
use super::ops::{Activation, Heads, KeysAndValues, Mask, Sees, attention, attention_after, dropout};
use super::{Input, Net};
use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig};
use burn::tensor::{Device, Int, Tensor};
use spec::choice;

choice! {
    /// Named sizes: those of nanoGPT, and two as large as GPT-2's.
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
    Small = "small",
    /// 24 layers, 16 heads, width 1024.
    Medium = "medium",
}

impl Preset {
    /// Layers, heads, width.
    pub fn sizes(self) -> (usize, usize, usize) {
        match self {
            Self::Nano => (3, 3, 48),
            Self::Micro => (4, 4, 128),
            Self::Mini => (6, 6, 192),
            Self::Shakespeare => (6, 6, 384),
            Self::Small => (12, 12, 768),
            Self::Medium => (24, 16, 1024),
        }
    }
}

/// The sizes of a GPT.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GptConfig {
    /// Number of tokens in the vocabulary.
    pub vocab_size: usize,
    /// Longest sequence, in tokens: the number of learnt positions.
    pub block_size: usize,
    /// Number of transformer blocks.
    pub n_layer: usize,
    /// Attention heads per block; divides `n_embd`.
    pub n_head: usize,
    /// Width of the embeddings and of the residual stream.
    pub n_embd: usize,
    /// Dropout probability of embeddings, attention weights and residual branches.
    pub dropout: f64,
}

impl GptConfig {
    /// [`ModelSource::kept_values`](super::ModelSource::kept_values) of a sequence of `block_size` tokens: in each block the inputs of its norms, its
    /// attention and its linear layers, and the slopes of GELU; then the inputs of the last norm and of the head.
    pub fn kept_values(&self) -> usize {
        let block = 16 * self.n_embd;
        (self.n_layer * block + 2 * self.n_embd).saturating_mul(self.block_size)
    }

    /// [`ModelSource::training_flops`](super::ModelSource::training_flops) of a sequence of `tokens`.
    pub fn training_flops(&self, tokens: usize) -> f64 {
        let weights = self.n_layer * 12 * self.n_embd.pow(2) + self.vocab_size * self.n_embd;
        training_flops(weights, tokens, self.n_embd, std::iter::repeat_n(tokens, self.n_layer))
    }
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
    fn forward(&self, x: Tensor<2>, batch: usize, mask: &Mask) -> Tensor<2> {
        attention(self.c_attn.forward(x), batch, Heads::equal(self.heads), &self.dropout, mask)
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

    fn forward(&self, x: Tensor<2>, batch: usize, mask: &Mask) -> Tensor<2> {
        let y = self.attn.forward(self.ln_1.forward(x.clone()), batch, mask);
        self.rest(x, y)
    }

    /// As [`Block::forward`], of the positions of one sequence that follow those in `before`.
    fn extend(&self, x: Tensor<2>, before: &mut KeysAndValues) -> Tensor<2> {
        let qkv = self.attn.c_attn.forward(self.ln_1.forward(x.clone()));
        let y = attention_after(qkv, Heads::equal(self.attn.heads), before, Sees::Past);
        self.rest(x, y)
    }

    /// What follows the attention `y`.
    fn rest(&self, x: Tensor<2>, y: Tensor<2>) -> Tensor<2> {
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
    /// Builds the network on `device`; weights and embeddings are drawn from N(0, 0.02).
    pub fn new(c: GptConfig, device: &Device) -> Self {
        Self {
            wte: Embedding::new(c.vocab_size, c.n_embd, 0.02, device),
            wpe: Embedding::new(c.block_size, c.n_embd, 0.02, device),
            h: (0..c.n_layer).map(|_| Block::new(&c, device)).collect(),
            ln_f: LayerNorm::new(c.n_embd, device),
            lm_head: Affine::normal(c.n_embd, c.vocab_size, 0.02, false, device),
            dropout: DropoutConfig::new(c.dropout).init(),
        }
    }
}

impl Decoder for Gpt {
    fn extend(&self, tokens: Tensor<2, Int>, cache: &mut KvCache) -> Tensor<2> {
        let [_, new] = tokens.dims();
        let tokens = self.wte.forward(tokens);
        let [_, _, width] = tokens.dims();
        let (positions, layers) = cache.grow(new, self.h.len());
        let positions = self.wpe.weight.val().slice([positions, 0..width]);
        let mut x = tokens.reshape([new, width]) + positions;
        for (block, before) in self.h.iter().zip(layers) {
            x = block.extend(x, before);
        }
        let last = x.slice([new - 1..new, 0..width]);
        logits(self.ln_f.forward(last), self.head())
    }

    fn hidden(&self, input: Input) -> Tensor<2> {
        let documents = input.documents();
        let index: Tensor<2, Int> = input.index::<2>();
        let [batch, time] = index.dims();
        let positions = self.wpe.of_positions(time, documents.as_ref());
        let tokens = self.wte.forward(index);
        let [_, _, width] = tokens.dims();
        let mut x = dropout((tokens + positions).reshape([batch * time, width]), &self.dropout);
        let mask = Mask::new(Sees::Past).within(documents.as_ref());
        for block in &self.h {
            x = block.forward(x, batch, &mask);
        }
        self.ln_f.forward(x)
    }

    fn head(&self) -> Tensor<2> {
        self.lm_head.weight.val()
    }
}

impl Net for Gpt {
    fn forward(&self, input: Input) -> Tensor<2> {
        logits(self.hidden(input), self.head())
    }

    fn stays_f32(name: &str) -> bool {
        name.contains("ln_")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::TensorData;
    use ddp::device::drawn;
    use ddp::module::draw_lazy;

    fn small() -> Gpt {
        let config =
            GptConfig { vocab_size: 11, block_size: 12, n_layer: 2, n_head: 2, n_embd: 16, dropout: 0.1 };
        let device = Device::flex();
        // Larger weights than the initial ones, so that attention is not uniform.
        let mut net = drawn(&device, 5, || {
            let net = Gpt::new(config, &device);
            draw_lazy(&net);
            net
        });
        for block in &mut net.h {
            block.attn.c_attn.weight = block.attn.c_attn.weight.clone().map(|w| w * 20.0);
        }
        net
    }

    fn row(tokens: &[i64]) -> Tensor<2, Int> {
        Tensor::from_data(TensorData::new(tokens.to_vec(), [1, tokens.len()]), &Device::flex())
    }

    fn values(logits: Tensor<2>) -> Vec<f32> {
        logits.into_data().try_into_vec::<f32>().unwrap()
    }

    /// The logits after the last token, by a forward pass over all of them.
    fn whole(net: &Gpt, tokens: &[i64]) -> Vec<f32> {
        let field =
            data::HostField { shape: vec![tokens.len()], data: data::FieldData::Index(tokens.to_vec()) };
        let all = values(net.forward(Input::from_host(&field, 1, &Device::flex())));
        all[all.len() - 11..].to_vec()
    }

    #[test]
    fn logits_with_a_cache_are_those_of_a_whole_forward_pass() {
        let net = small();
        let tokens = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 10, 8];
        for first in [1, 2, 5, 12] {
            let mut cache = KvCache::default();
            let mut at = 0;
            // A prompt of `first` tokens, then one token at a time, and two at the end.
            for new in std::iter::once(first).chain(std::iter::repeat(1)) {
                let new = if at + 2 == tokens.len() { 2 } else { new };
                let found = values(net.extend(row(&tokens[at..at + new]), &mut cache));
                at += new;
                assert_eq!(cache.tokens(), at);
                let expected = whole(&net, &tokens[..at]);
                for (a, b) in found.iter().zip(&expected) {
                    assert!((a - b).abs() < 1e-5, "{at} tokens, prompt of {first}: {found:?}, {expected:?}");
                }
                if at == tokens.len() {
                    break;
                }
            }
        }
        // The logits depend on the order of earlier tokens.
        let swapped = whole(&net, &[1, 3, 4]);
        assert!(whole(&net, &[3, 1, 4]).iter().zip(&swapped).any(|(a, b)| (a - b).abs() > 1e-3));
    }
}
