//! Self-attention.

use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::nn::Dropout;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use ddp::module::{in_dtype, in_f32};
use kernels::attention::{self, AttentionShape};
use std::cell::OnceCell;

/// Where the keys of a sequence lie in the future of a query, `[time, time]`. Made at its first use: in host memory
/// without dropout it is not needed.
#[derive(Default)]
pub struct CausalMask(OnceCell<Tensor<2, Bool>>);

/// `torch.nn.functional.scaled_dot_product_attention(q, k, v)` with dropout of the weights; causal, if a mask is given.
/// `qkv` is `[batch * time, 3 * heads * head]`, the result `[batch * time, heads * head]`.
pub fn attention(
    qkv: Tensor<2>,
    batch: usize,
    heads: usize,
    dropout: &Dropout,
    mask: Option<&CausalMask>,
) -> Tensor<2> {
    let device = qkv.device();
    let drops = dropout.prob > 0.0 && device.is_autodiff();
    if drops || !is_host(&device) {
        return composed(qkv, batch, heads, dropout, mask);
    }
    let [rows, width] = qkv.dims();
    let shape =
        AttentionShape { batch, time: rows / batch, heads, head: width / 3 / heads, causal: mask.is_some() };
    if !device.is_autodiff() {
        let qkv = super::plain(qkv);
        let (out, _) = forward(shape, &qkv);
        recycle(qkv);
        return Tensor::from_primitive::<Flex>(out);
    }
    let (qkv, node) = super::tracked(qkv);
    let (out, statistics) = forward(shape, &qkv);
    let state = AttentionState { shape, qkv, out: out.clone(), statistics };
    record(AttentionStep, [node], state, out)
}

/// From Burn's operations.
fn composed(
    qkv: Tensor<2>,
    batch: usize,
    heads: usize,
    dropout: &Dropout,
    mask: Option<&CausalMask>,
) -> Tensor<2> {
    let [rows, width] = qkv.dims();
    let (time, width) = (rows / batch, width / 3);
    let head = width / heads;
    let part = |i: usize| {
        let part = qkv.clone().slice([0..rows, i * width..(i + 1) * width]);
        part.reshape([batch, time, heads, head]).swap_dims(1, 2)
    };
    let scores = part(0).matmul(part(1).transpose()) * (1.0 / (head as f64).sqrt());
    let dtype = scores.dtype();
    let mut scores = in_f32(scores);
    if let Some(mask) = mask {
        let hidden = mask.0.get_or_init(|| Tensor::tril_mask([time, time], 0, &qkv.device())).clone();
        scores = scores.mask_fill(hidden.unsqueeze::<4>(), f32::NEG_INFINITY);
    }
    let weights = super::dropout(in_dtype(softmax(scores, 3), dtype), dropout);
    weights.matmul(part(2)).swap_dims(1, 2).reshape([rows, width])
}

/// The keys and values of a sequence's positions so far, `[time, width]` each.
#[derive(Clone, Debug, Default)]
pub struct KeysAndValues(Option<[Tensor<2>; 2]>);

/// Causal attention of the positions that follow those in `before`, which then has them too: of one sequence, without dropout and
/// autodiff. `qkv` is `[new, 3 * heads * head]`, the result `[new, heads * head]`: the last rows of [`attention`] over all positions.
pub fn attention_after(qkv: Tensor<2>, heads: usize, before: &mut KeysAndValues) -> Tensor<2> {
    let [new, width] = qkv.dims();
    let width = width / 3;
    let head = width / heads;
    let part = |i: usize| qkv.clone().slice([0..new, i * width..(i + 1) * width]);
    let [keys, values] = match before.0.take() {
        Some([keys, values]) => [Tensor::cat(vec![keys, part(1)], 0), Tensor::cat(vec![values, part(2)], 0)],
        None => [part(1), part(2)],
    };
    let [all, _] = keys.dims();
    let by_head = |x: Tensor<2>, rows: usize| x.reshape([rows, heads, head]).swap_dims(0, 1);
    let scores = by_head(part(0), new).matmul(by_head(keys.clone(), all).transpose());
    let scores = scores * (1.0 / (head as f64).sqrt());
    let dtype = scores.dtype();
    let mut scores = in_f32(scores);
    if new > 1 {
        let hidden = Tensor::<2, Bool>::tril_mask([new, all], (all - new) as i64, &qkv.device());
        scores = scores.mask_fill(hidden.unsqueeze::<3>(), f32::NEG_INFINITY);
    }
    let weights = in_dtype(softmax(scores, 2), dtype);
    let out = weights.matmul(by_head(values.clone(), all)).swap_dims(0, 1).reshape([new, width]);
    before.0 = Some([keys, values]);
    out
}

fn forward(shape: AttentionShape, qkv: &Flat) -> (Flat, Vec<[f32; 2]>) {
    let rows = shape.batch * shape.time;
    let mut out = buffer(rows * shape.heads * shape.head);
    let mut statistics = vec![[0.0; 2]; rows * shape.heads];
    attention::forward(shape, values(qkv), &mut out, &mut statistics, threads());
    (tensor(out, [rows, shape.heads * shape.head]), statistics)
}

#[derive(Clone, Debug)]
struct AttentionState {
    shape: AttentionShape,
    qkv: Flat,
    out: Flat,
    statistics: Vec<[f32; 2]>,
}

#[derive(Debug)]
struct AttentionStep;

impl Backward<Flex, 1> for AttentionStep {
    type State = AttentionState;

    fn backward(self, ops: Ops<AttentionState, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<Flex>(&ops.node).to_contiguous();
        let AttentionState { shape, qkv, out, statistics } = &ops.state;
        let saved = attention::AttentionInputs { qkv: values(qkv), out: values(out), statistics };
        let mut dqkv = buffer(saved.qkv.len());
        attention::backward(*shape, saved, values(&dy), &mut dqkv, threads());
        let gradient = tensor(dqkv, dims(qkv));
        register(grads, &ops, [gradient]);
        [dy, ops.state.qkv, ops.state.out].into_iter().for_each(recycle);
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
