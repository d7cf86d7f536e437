//! What models that continue a sequence of tokens have in common.

use super::ops::KeysAndValues;
use super::{AnyNet, Gpt, Gpt2, Llama};
use burn::tensor::{Int, Tensor};
use std::ops::Range;

/// What later tokens of a sequence need of the earlier ones: each layer's keys and values.
#[derive(Clone, Debug, Default)]
pub struct KvCache {
    layers: Vec<KeysAndValues>,
    len: usize,
}

impl KvCache {
    /// Number of tokens in the cache.
    pub fn tokens(&self) -> usize {
        self.len
    }

    /// The positions of `new` tokens, which are counted from here on, and what each of `count` layers has of those before.
    pub(super) fn grow(&mut self, new: usize, count: usize) -> (Range<usize>, &mut [KeysAndValues]) {
        self.layers.resize_with(count, KeysAndValues::default);
        let positions = self.len..self.len + new;
        self.len = positions.end;
        (positions, &mut self.layers)
    }
}

/// A model of tokens that computes each token of a growing sequence once.
pub trait Decoder {
    /// The logits `[1, vocab]` after the last of `tokens`, `[1, new]`, which follow those in `cache` and are added to it. They
    /// equal those of a forward pass over all tokens to f32 rounding; not with `dynamic` rotary positions beyond the model's longest
    /// sequence, where earlier keys keep their angles, as in transformers. Without autodiff.
    ///
    /// # Panics
    /// There are more tokens than the model has positions.
    fn extend(&self, tokens: Tensor<2, Int>, cache: &mut KvCache) -> Tensor<2>;
}

/// The built-in decoder that `net` is, if it is one.
pub fn decoder(net: &AnyNet) -> Option<&dyn Decoder> {
    fn of<D: Decoder + 'static>(net: &AnyNet) -> Option<&dyn Decoder> {
        net.module().downcast_ref::<D>().map(|decoder| decoder as &dyn Decoder)
    }
    of::<Gpt>(net).or_else(|| of::<Gpt2>(net)).or_else(|| of::<Llama>(net))
}
