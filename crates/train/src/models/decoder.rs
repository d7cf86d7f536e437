//! What models that continue a sequence of tokens have in common.

use super::ops::{Activation, KeysAndValues, linear};
use super::{AnyNet, Gpt, Gpt2, Input, Llama};
use burn::tensor::{Int, Tensor};
use ddp::module::in_f32;
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

    /// The inputs of the last layer, `[batch * time, width]`, of which [`Net::forward`](super::Net::forward) returns the logits.
    fn hidden(&self, input: Input) -> Tensor<2>;

    /// The weight of the last layer, `[vocab, width]`; it has no bias.
    fn head(&self) -> Tensor<2>;
}

/// The logits `[rows, vocab]` of rows of [`Decoder::hidden`], in f32.
pub fn logits(hidden: Tensor<2>, head: Tensor<2>) -> Tensor<2> {
    in_f32(linear(hidden, head, None, None, Activation::None))
}

/// The built-in decoder that `net` is, if it is one.
pub fn decoder(net: &AnyNet) -> Option<&dyn Decoder> {
    fn of<D: Decoder + 'static>(net: &AnyNet) -> Option<&dyn Decoder> {
        net.module().downcast_ref::<D>().map(|decoder| decoder as &dyn Decoder)
    }
    of::<Gpt>(net).or_else(|| of::<Gpt2>(net)).or_else(|| of::<Llama>(net))
}
