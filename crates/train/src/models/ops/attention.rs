//! Self-attention.

use super::super::Documents;
use super::{Flat, buffer, dims, record, recycle, register, tensor, threads, values};
use burn::backend::Flex;
use burn::nn::Dropout;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Device, Tensor};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, Ops};
use ddp::device::is_host;
use ddp::module::{in_dtype, in_f32};
use kernels::attention::{self, AttentionShape, Sees};
use std::cell::OnceCell;

/// Heads of each token. A row has those of its query, then those of its key and of its value.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// Of its query.
    pub queries: usize,
    /// Of its key, and of its value; divides `queries`. As many neighbouring ones of queries share one.
    pub keys: usize,
}

impl Heads {
    /// As many of each.
    pub fn equal(heads: usize) -> Self {
        Self { queries: heads, keys: heads }
    }

    /// Elements of one head.
    fn size(self, row: usize) -> usize {
        row / (self.queries + 2 * self.keys)
    }
}

/// Which keys each query does not see.
pub struct Mask {
    sees: Sees,
    documents: Option<Documents>,
    /// `[queries, keys]`, made at its first use: in host memory without dropout it is not needed.
    hidden: OnceCell<Option<Tensor<2, Bool>>>,
    /// `[batch, 1, queries, keys]`: those of other documents.
    of_others: OnceCell<Tensor<4, Bool>>,
}

impl Mask {
    /// The mask of tokens which see these ones.
    pub fn new(sees: Sees) -> Self {
        Self { sees, documents: None, hidden: OnceCell::new(), of_others: OnceCell::new() }
    }

    /// The same for sequences that consist of several documents; for tokens that do not see later ones.
    pub fn within(self, documents: Option<&Documents>) -> Self {
        Self { documents: documents.cloned(), ..self }
    }

    /// As the kernels take them.
    fn starts(&self) -> &[u32] {
        self.documents.as_ref().map_or(&[], Documents::starts)
    }

    /// As [`Self::apply`], of all queries, `[batch, heads, time, time]`, without those of other documents.
    fn apply_in_batch(&self, scores: Tensor<4>) -> Tensor<4> {
        let scores = self.apply(scores);
        let Some(documents) = &self.documents else { return scores };
        let of_others = self.of_others.get_or_init(|| {
            let starts = documents.start_tensor(&scores.device());
            let [batch, time] = starts.dims();
            let queries = starts.clone().reshape([batch, 1, time, 1]).expand([batch, 1, time, time]);
            queries.not_equal(starts.reshape([batch, 1, 1, time]).expand([batch, 1, time, time]))
        });
        let [batch, heads, time, _] = scores.dims();
        scores.mask_fill(of_others.clone().expand([batch, heads, time, time]), f32::NEG_INFINITY)
    }

    /// `scores` `[…, queries, keys]` of the last queries of a sequence, without those of keys that they do not see.
    fn apply<const D: usize>(&self, scores: Tensor<D>) -> Tensor<D> {
        let [queries, keys] = [D - 2, D - 1].map(|d| scores.dims()[d]);
        let hidden = self.hidden.get_or_init(|| hidden(self.sees, queries, keys, &scores.device()));
        match hidden {
            Some(hidden) => scores.mask_fill(hidden.clone().unsqueeze::<D>(), f32::NEG_INFINITY),
            None => scores,
        }
    }
}

/// `[queries, keys]`; None if all are seen.
fn hidden(sees: Sees, queries: usize, keys: usize, device: &Device) -> Option<Tensor<2, Bool>> {
    let diagonal = keys as i64 - queries as i64;
    let later = || Tensor::<2, Bool>::tril_mask([queries, keys], diagonal, device);
    match sees {
        Sees::All => None,
        Sees::Past => (queries > 1).then(later),
        Sees::Window(width) => {
            let before = Tensor::triu_mask([queries, keys], diagonal + 1 - width as i64, device);
            Some(later().bool_or(before))
        }
    }
}

/// `torch.nn.functional.scaled_dot_product_attention(q, k, v)` with dropout of the weights.
/// `qkv` is `[batch * time, (heads + 2 * kv_heads) * head]`, the result `[batch * time, heads * head]`.
pub fn attention(qkv: Tensor<2>, batch: usize, heads: Heads, dropout: &Dropout, mask: &Mask) -> Tensor<2> {
    let device = qkv.device();
    let drops = dropout.prob > 0.0 && device.is_autodiff();
    if drops || !is_host(&device) {
        return composed(qkv, batch, heads, dropout, mask);
    }
    let [rows, width] = qkv.dims();
    let shape = AttentionShape {
        batch,
        time: rows / batch,
        heads: heads.queries,
        kv_heads: heads.keys,
        head: heads.size(width),
        sees: mask.sees,
    };
    if !device.is_autodiff() {
        let qkv = super::plain(qkv);
        let (out, _) = forward(shape, &qkv, mask.starts());
        recycle(qkv);
        return Tensor::from_primitive::<Flex>(out);
    }
    let (qkv, node) = super::tracked(qkv);
    let (out, statistics) = forward(shape, &qkv, mask.starts());
    let documents = mask.documents.clone();
    let state = AttentionState { shape, documents, qkv, out: out.clone(), statistics };
    record(AttentionStep, [node], state, out)
}

/// From Burn's operations.
fn composed(qkv: Tensor<2>, batch: usize, heads: Heads, dropout: &Dropout, mask: &Mask) -> Tensor<2> {
    let [rows, width] = qkv.dims();
    let (time, head) = (rows / batch, heads.size(width));
    let part = |before: usize, heads: usize| {
        let part = qkv.clone().narrow(1, before * head, heads * head);
        part.reshape([batch, time, heads, head]).swap_dims(1, 2)
    };
    let [q, k, v] = [
        part(0, heads.queries),
        part(heads.queries, heads.keys),
        part(heads.queries + heads.keys, heads.keys),
    ];
    // The queries that share a head of keys are rows of one matrix.
    let group = heads.queries / heads.keys;
    let shared = |x: Tensor<4>, columns: usize| match group {
        1 => x,
        _ => x.reshape([batch, heads.keys, group * time, columns]),
    };
    let apart = |x: Tensor<4>, columns: usize| match group {
        1 => x,
        _ => x.reshape([batch, heads.queries, time, columns]),
    };
    let scores = apart(shared(q, head).matmul(k.transpose()), time) * (1.0 / (head as f64).sqrt());
    let dtype = scores.dtype();
    let scores = mask.apply_in_batch(in_f32(scores));
    let weights = super::dropout(in_dtype(softmax(scores, 3), dtype), dropout);
    apart(shared(weights, time).matmul(v), head).swap_dims(1, 2).reshape([rows, heads.queries * head])
}

/// The keys and values of a sequence's positions so far, `[time, kv_heads * head]` each.
#[derive(Clone, Debug, Default)]
pub struct KeysAndValues(Option<[Tensor<2>; 2]>);

/// Attention of the positions that follow those in `before`, which then has them too: of one sequence, without dropout and autodiff.
/// `qkv` is `[new, (heads + 2 * kv_heads) * head]`, the result `[new, heads * head]`: the last rows of [`attention`] over all positions.
pub fn attention_after(qkv: Tensor<2>, heads: Heads, before: &mut KeysAndValues, sees: Sees) -> Tensor<2> {
    let [new, width] = qkv.dims();
    let head = heads.size(width);
    let part = |before: usize, heads: usize| qkv.clone().narrow(1, before * head, heads * head);
    let new_keys = part(heads.queries, heads.keys);
    let new_values = part(heads.queries + heads.keys, heads.keys);
    let [keys, values] = match before.0.take() {
        Some([keys, values]) => {
            [Tensor::cat(vec![keys, new_keys], 0), Tensor::cat(vec![values, new_values], 0)]
        }
        None => [new_keys, new_values],
    };
    let [all, _] = keys.dims();
    let by_head = |x: Tensor<2>, rows: usize, heads: usize| x.reshape([rows, heads, head]).swap_dims(0, 1);
    let group = heads.queries / heads.keys;
    let q = by_head(part(0, heads.queries), new, heads.queries).reshape([heads.keys, group * new, head]);
    let scores =
        q.matmul(by_head(keys.clone(), all, heads.keys).transpose()).reshape([heads.queries, new, all]);
    let scores = scores * (1.0 / (head as f64).sqrt());
    let dtype = scores.dtype();
    let scores = Mask::new(sees).apply(in_f32(scores));
    let weights = in_dtype(softmax(scores, 2), dtype).reshape([heads.keys, group * new, all]);
    let out = weights.matmul(by_head(values.clone(), all, heads.keys));
    let out = out.reshape([heads.queries, new, head]).swap_dims(0, 1).reshape([new, heads.queries * head]);
    before.0 = Some([keys, values]);
    out
}

fn forward(shape: AttentionShape, qkv: &Flat, documents: &[u32]) -> (Flat, Vec<[f32; 2]>) {
    let rows = shape.batch * shape.time;
    let mut out = buffer(rows * shape.heads * shape.head);
    let mut statistics = vec![[0.0; 2]; rows * shape.heads];
    attention::forward(shape, values(qkv), documents, &mut out, &mut statistics, threads());
    (tensor(out, [rows, shape.heads * shape.head]), statistics)
}

#[derive(Clone, Debug)]
struct AttentionState {
    shape: AttentionShape,
    documents: Option<Documents>,
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
        let AttentionState { shape, documents, qkv, out, statistics } = &ops.state;
        let documents = documents.as_ref().map_or(&[][..], Documents::starts);
        let saved = attention::AttentionInputs { qkv: values(qkv), documents, out: values(out), statistics };
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
