//! Self-attention, causal or not, with its gradients. Queries and keys are processed in blocks, with the softmax computed online,
//! so that nothing of size `time` x `time` is kept. Source: FlashAttention (Dao et al., 2022, arXiv:2205.14135), without
//! its dropout.

use super::attention_loops::{normalise, scores_gradient, softmax, weights};
use super::panel::Panel;
use super::product::{MatMul, Matrix};
use super::tasks::{for_each, scratch};
use std::ops::Range;

/// Sizes of an attention. A row of `qkv` holds the query, the key and the value of one token, each of `heads * head`
/// elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    pub batch: usize,
    pub time: usize,
    pub heads: usize,
    /// Elements of one head.
    pub head: usize,
    /// Tokens see only those before them and themselves.
    pub causal: bool,
}

/// Queries, or keys, in one block.
const BLOCK: usize = 64;

impl AttentionShape {
    fn width(&self) -> usize {
        self.heads * self.head
    }

    fn check(&self, qkv: usize, out: usize, statistics: usize) {
        let rows = self.batch * self.time;
        assert_eq!(qkv, rows * 3 * self.width(), "length of an attention's input: {self:?}");
        assert_eq!(out, rows * self.width(), "length of an attention's output: {self:?}");
        assert_eq!(statistics, rows * self.heads, "length of an attention's statistics: {self:?}");
    }

    fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let time = self.time;
        (0..time).step_by(BLOCK).map(move |start| Block { start, len: BLOCK.min(time - start) })
    }

    /// The blocks of keys that a block of queries sees.
    fn keys(&self, queries: Block) -> impl Iterator<Item = Block> + use<> {
        let causal = self.causal;
        self.blocks().take_while(move |keys| !causal || keys.start <= queries.start)
    }

    /// How many of the keys the first of the queries sees; each further query sees one more.
    fn visible(&self, queries: Block, keys: Block) -> usize {
        match self.causal {
            true => queries.start - keys.start + 1,
            false => keys.len,
        }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// Query (0), key (1) or value (2) of head `h`, from token `start` of a sequence.
    fn part<'a>(&self, qkv: &'a [f32], which: usize, h: usize, start: usize) -> Matrix<'a> {
        let row = 3 * self.width();
        Matrix::rows(&qkv[start * row + which * self.width() + h * self.head..], row)
    }

    /// The columns of each head in a sequence's rows of `columns` elements.
    fn heads_of<'a>(
        &self,
        sequence: &'a mut [f32],
        columns: usize,
    ) -> impl Iterator<Item = Panel<'a>> + use<'a> {
        let parts = Panel::whole(sequence, columns).split(self.time, self.head);
        parts.into_iter().map(|part| part.panel)
    }

    fn of_out<'a>(&self, out: &'a [f32], h: usize, start: usize) -> Matrix<'a> {
        Matrix::rows(&out[start * self.width() + h * self.head..], self.width())
    }
}

/// Neighbouring tokens of a sequence.
#[derive(Clone, Copy)]
struct Block {
    start: usize,
    len: usize,
}

impl Block {
    fn tokens(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// `out[t] = sum over s of softmax(q[t] k[s] / sqrt(head)) v[s]` for each head of each sequence, with `s <= t` if causal.
/// `qkv` is `[batch, time, 3, heads, head]`, `out` `[batch, time, heads, head]`. `statistics` `[batch, heads, time]` becomes
/// each row's maximum and sum of exponentials, from which the backward pass computes the weights again.
///
/// Panics if a slice's length does not match `shape`; so does [`backward`].
pub fn forward(
    shape: AttentionShape,
    qkv: &[f32],
    out: &mut [f32],
    statistics: &mut [[f32; 2]],
    parallelism: usize,
) {
    shape.check(qkv.len(), out.len(), statistics.len());
    if out.is_empty() {
        return;
    }
    let sequence = shape.time * shape.width();
    let heads = out
        .chunks_mut(sequence)
        .flat_map(|out| shape.heads_of(out, shape.width()))
        .zip(statistics.chunks_mut(shape.time));
    let tasks: Vec<_> = heads.enumerate().collect();
    for_each(parallelism, tasks.into_iter(), |(task, (mut out, statistics))| {
        let qkv = &qkv[task / shape.heads * 3 * sequence..][..3 * sequence];
        for queries in shape.blocks() {
            let (statistics, out) = (&mut statistics[queries.tokens()], out.of_rows(queries.tokens()));
            attend(&shape, qkv, task % shape.heads, queries, statistics, out);
        }
    });
}

/// One head's output for a block of queries.
fn attend(
    shape: &AttentionShape,
    qkv: &[f32],
    h: usize,
    queries: Block,
    statistics: &mut [[f32; 2]],
    mut out: Panel,
) {
    statistics.fill([f32::NEG_INFINITY, 0.0]);
    let mut scores = scratch(queries.len * BLOCK);
    for keys in shape.keys(queries) {
        let scores = &mut scores[..queries.len * keys.len];
        scaled_scores(shape, qkv, h, queries, keys, scores);
        let first = keys.start == 0;
        softmax(scores, keys.len, shape.visible(queries, keys), statistics, &mut out, first);
        MatMul { inner: keys.len, scale: 1.0, accumulate: !first }.run(
            out.of_rows(0..queries.len),
            Matrix::rows(scores, keys.len),
            shape.part(qkv, 2, h, keys.start),
        );
    }
    normalise(&mut out, statistics);
}

/// `scores = q k^T / sqrt(head)` for a block of queries and one of keys, `[queries.len, keys.len]`.
fn scaled_scores(
    shape: &AttentionShape,
    qkv: &[f32],
    h: usize,
    queries: Block,
    keys: Block,
    scores: &mut [f32],
) {
    MatMul { inner: shape.head, scale: shape.scale(), accumulate: false }.run(
        Panel::whole(scores, keys.len),
        shape.part(qkv, 0, h, queries.start),
        shape.part(qkv, 1, h, keys.start).transposed(),
    );
}

/// Inputs of the backward pass of [`forward`].
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    pub qkv: &'a [f32],
    pub out: &'a [f32],
    pub statistics: &'a [[f32; 2]],
}

/// Gradient of `qkv`, overwritten, from that of `out`.
pub fn backward(shape: AttentionShape, saved: Saved, dy: &[f32], dqkv: &mut [f32], parallelism: usize) {
    let Saved { qkv, out, statistics } = saved;
    shape.check(qkv.len(), out.len(), statistics.len());
    assert_eq!(
        (dy.len(), dqkv.len()),
        (out.len(), qkv.len()),
        "lengths of an attention's gradients: {shape:?}"
    );
    if out.is_empty() {
        return;
    }
    let sequence = shape.time * shape.width();
    let heads = dqkv.chunks_mut(3 * sequence).flat_map(|dqkv| {
        let mut q: Vec<_> = shape.heads_of(dqkv, 3 * shape.width()).collect();
        let v = q.split_off(2 * shape.heads);
        let k = q.split_off(shape.heads);
        q.into_iter().zip(k).zip(v).map(|((q, k), v)| [q, k, v])
    });
    let tasks: Vec<_> = heads.zip(statistics.chunks(shape.time)).enumerate().collect();
    for_each(parallelism, tasks.into_iter(), |(task, (mut dqkv, statistics))| {
        let (s, h) = (task / shape.heads, task % shape.heads);
        let (dy, out) = (&dy[s * sequence..][..sequence], &out[s * sequence..][..sequence]);
        let mut dots = scratch(shape.time);
        row_dots(&shape, h, dy, out, &mut dots);
        let qkv = &qkv[s * 3 * sequence..][..3 * sequence];
        let head = Head { shape: &shape, h, qkv, dy, statistics, dots: &dots };
        for queries in shape.blocks() {
            for keys in shape.keys(queries) {
                head.add_gradients(queries, keys, &mut dqkv);
            }
        }
    });
}

/// For each token, the product of a head's output and its gradient.
fn row_dots(shape: &AttentionShape, h: usize, dy: &[f32], out: &[f32], dots: &mut [f32]) {
    let rows = dy.chunks_exact(shape.width()).zip(out.chunks_exact(shape.width()));
    for (dot, (dy, out)) in dots.iter_mut().zip(rows) {
        let columns = h * shape.head..(h + 1) * shape.head;
        *dot = dy[columns.clone()].iter().zip(&out[columns]).map(|(dy, out)| dy * out).sum();
    }
}

/// One head of one sequence in the backward pass.
struct Head<'a> {
    shape: &'a AttentionShape,
    h: usize,
    qkv: &'a [f32],
    dy: &'a [f32],
    statistics: &'a [[f32; 2]],
    dots: &'a [f32],
}

impl Head<'_> {
    /// Adds what a block of queries and one of keys contribute to `dqkv`; each part's first block overwrites it.
    fn add_gradients(&self, queries: Block, keys: Block, dqkv: &mut [Panel; 3]) {
        let &Head { shape, h, qkv, dy, statistics, dots } = self;
        let mut p = scratch(queries.len * keys.len);
        scaled_scores(shape, qkv, h, queries, keys, &mut p);
        weights(&mut p, keys.len, shape.visible(queries, keys), &statistics[queries.tokens()]);
        let mut ds = scratch(queries.len * keys.len);
        let dy = shape.of_out(dy, h, queries.start);
        let v = shape.part(qkv, 2, h, keys.start);
        MatMul { inner: shape.head, scale: 1.0, accumulate: false }.run(
            Panel::whole(&mut ds, keys.len),
            dy,
            v.transposed(),
        );
        // The first queries that see these keys.
        let first = if shape.causal { keys.start } else { 0 };
        let later = queries.start > first;
        let p_t = Matrix::rows(&p, keys.len).transposed();
        let [dq, dk, dv] = dqkv;
        let dv = dv.of_rows(keys.tokens());
        MatMul { inner: queries.len, scale: 1.0, accumulate: later }.run(dv, p_t, dy);
        scores_gradient(&p, &dots[queries.tokens()], keys.len, &mut ds);
        let ds = Matrix::rows(&ds, keys.len);
        let (q, k) = (shape.part(qkv, 0, h, queries.start), shape.part(qkv, 1, h, keys.start));
        let (scale, more) = (shape.scale(), keys.start > 0);
        MatMul { inner: keys.len, scale, accumulate: more }.run(dq.of_rows(queries.tokens()), ds, k);
        MatMul { inner: queries.len, scale, accumulate: later }.run(
            dk.of_rows(keys.tokens()),
            ds.transposed(),
            q,
        );
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
