//! Self-attention, causal or not, with its gradients. Queries and keys are processed in blocks, with the softmax computed online,
//! so that nothing of size `time` x `time` is kept. Source: FlashAttention (Dao et al., 2022, arXiv:2205.14135), without
//! its dropout.

use super::attention_loops::{Seen, normalise, row_dots, scores_gradient, softmax, weights};
use super::direct::{Direct, Needed, WIDTH, product};
use super::layout::scatter;
use super::panel::Panel;
use super::product::Matrix;
use super::tasks::{TaskBuffers, for_each, scratch};
use std::ops::Range;

/// Sizes of an attention. A row of `qkv` holds the query, the key and the value of one token, each of `heads * head`
/// elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub time: usize,
    /// Heads of each token.
    pub heads: usize,
    /// Elements of one head.
    pub head: usize,
    /// Tokens see only those before them and themselves.
    pub causal: bool,
}

/// Queries, or keys, in one block. A row of scores has as many elements, whatever the number of keys.
pub(super) const BLOCK: usize = 64;

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

    fn seen(&self, queries: Block, keys: Block) -> Seen {
        let first = match self.causal {
            true => queries.start - keys.start + 1,
            false => keys.len,
        };
        Seen { first, keys: keys.len }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// Query (0), key (1) or value (2) of head `h`, from token `start` of a sequence.
    fn part<'a>(&self, qkv: &'a [f32], which: usize, h: usize, start: usize) -> Matrix<'a> {
        let row = 3 * self.width();
        Matrix::rows(&qkv[start * row + which * self.width() + h * self.head..], row)
    }

    /// Keys (1) or values (2) of head `h`, transposed within their blocks.
    fn transposed(&self, qkv: &[f32], which: usize, h: usize) -> Transposed {
        let offsets: Vec<usize> = (0..self.head).map(|column| column * BLOCK).collect();
        let size = self.head * BLOCK;
        let mut values = scratch(self.time.div_ceil(BLOCK) * size);
        for (keys, values) in self.blocks().zip(values.chunks_exact_mut(size)) {
            let rows = self.part(qkv, which, h, keys.start);
            scatter(rows.values, rows.row_step, keys.len, &offsets, values);
        }
        Transposed { values, size }
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

/// One part of all tokens of a head: of each block the elements of one column after the other.
struct Transposed {
    values: TaskBuffers,
    /// Elements of a block.
    size: usize,
}

impl Transposed {
    fn block(&self, keys: Block) -> Matrix<'_> {
        Matrix::rows(&self.values[keys.start / BLOCK * self.size..][..self.size], BLOCK)
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
        let h = task % shape.heads;
        let keys = shape.transposed(qkv, 1, h);
        for queries in shape.blocks() {
            let (statistics, out) = (&mut statistics[queries.tokens()], out.of_rows(queries.tokens()));
            attend(&shape, qkv, h, &keys, queries, statistics, out);
        }
    });
}

/// One head's output for a block of queries.
fn attend(
    shape: &AttentionShape,
    qkv: &[f32],
    h: usize,
    keys_transposed: &Transposed,
    queries: Block,
    statistics: &mut [[f32; 2]],
    mut out: Panel,
) {
    statistics.fill([f32::NEG_INFINITY, 0.0]);
    let mut scores = scratch(queries.len * BLOCK);
    let q = shape.part(qkv, 0, h, queries.start);
    for keys in shape.keys(queries) {
        let (seen, first) = (shape.seen(queries, keys), keys.start == 0);
        with_keys(shape.scale(), q, keys_transposed.block(keys), seen, &mut scores);
        softmax(&mut scores, seen, statistics, &mut out, first);
        let sums = Direct { scale: 1.0, accumulate: !first };
        over_keys(sums, &scores, shape.part(qkv, 2, h, keys.start), seen, out.of_rows(0..queries.len));
    }
    normalise(&mut out, statistics);
}

/// `out[t][s] = scale * (row t of queries) . (row s of keys)` for the pairs that see each other.
fn with_keys(scale: f32, queries: Matrix, keys_transposed: Matrix, seen: Seen, out: &mut [f32]) {
    let head = keys_transposed.values.len() / BLOCK;
    product(
        Direct { scale, accumulate: false },
        Panel::whole(out, BLOCK),
        queries,
        keys_transposed,
        // Whole vectors, and so a few more than are seen.
        |rows| Needed { columns: seen.of(rows.end - 1).next_multiple_of(WIDTH), inner: 0..head },
    );
}

/// `out[t] = sum over the keys s that query t sees of weights[t][s] * rows[s]`.
fn over_keys(sums: Direct, weights: &[f32], rows: Matrix, seen: Seen, out: Panel) {
    let columns = out.columns();
    let weights = Matrix::rows(weights, BLOCK);
    product(sums, out, weights, rows, |queries| Needed { columns, inner: 0..seen.of(queries.end - 1) });
}

/// `out[s] = sum over the queries t that see key s of weights[t][s] * rows[t]`.
fn over_queries(sums: Direct, weights: &[f32], rows: Matrix, seen: Seen, out: Panel) {
    let (columns, queries) = (out.columns(), weights.len() / BLOCK);
    let weights = Matrix::rows(weights, BLOCK).transposed();
    product(sums, out, weights, rows, |keys| Needed {
        columns,
        inner: seen.since(keys.start).min(queries)..queries,
    });
}

/// Inputs of the backward pass of [`forward`].
#[derive(Clone, Copy)]
pub struct AttentionInputs<'a> {
    /// The forward pass's input.
    pub qkv: &'a [f32],
    /// Its result.
    pub out: &'a [f32],
    /// What it wrote of each row's softmax.
    pub statistics: &'a [[f32; 2]],
}

/// Gradient of `qkv`, overwritten, from that of `out`.
pub fn backward(
    shape: AttentionShape,
    saved: AttentionInputs,
    dy: &[f32],
    dqkv: &mut [f32],
    parallelism: usize,
) {
    let AttentionInputs { qkv, out, statistics } = saved;
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
        row_dots(dy, out, shape.width(), h * shape.head..(h + 1) * shape.head, &mut dots);
        let qkv = &qkv[s * 3 * sequence..][..3 * sequence];
        let [keys, values] = [1, 2].map(|which| shape.transposed(qkv, which, h));
        let head = Head { shape: &shape, h, qkv, keys, values, dy, statistics, dots: &dots };
        for queries in shape.blocks() {
            for keys in shape.keys(queries) {
                head.add_gradients(queries, keys, &mut dqkv);
            }
        }
    });
}

/// One head of one sequence in the backward pass.
struct Head<'a> {
    shape: &'a AttentionShape,
    h: usize,
    qkv: &'a [f32],
    keys: Transposed,
    values: Transposed,
    dy: &'a [f32],
    statistics: &'a [[f32; 2]],
    dots: &'a [f32],
}

impl Head<'_> {
    /// Adds what a block of queries and one of keys contribute to `dqkv`; each part's first block overwrites it.
    fn add_gradients(&self, queries: Block, keys: Block, dqkv: &mut [Panel; 3]) {
        let &Head { shape, h, qkv, dy, .. } = self;
        let seen = shape.seen(queries, keys);
        let [q, k] = [(0, queries), (1, keys)].map(|(which, block)| shape.part(qkv, which, h, block.start));
        let dy = shape.of_out(dy, h, queries.start);
        let mut p = scratch(queries.len * BLOCK);
        with_keys(shape.scale(), q, self.keys.block(keys), seen, &mut p);
        weights(&mut p, seen, &self.statistics[queries.tokens()]);
        let mut ds = scratch(queries.len * BLOCK);
        with_keys(1.0, dy, self.values.block(keys), seen, &mut ds);
        scores_gradient(&p, &self.dots[queries.tokens()], seen, &mut ds);

        // The first queries that see these keys.
        let first = if shape.causal { keys.start } else { 0 };
        let [of_queries, of_keys] = [keys.start > 0, queries.start > first];
        let [dq, dk, dv] = dqkv;
        let sums = |scale, accumulate| Direct { scale, accumulate };
        over_queries(sums(1.0, of_keys), &p, dy, seen, dv.of_rows(keys.tokens()));
        over_keys(sums(shape.scale(), of_queries), &ds, k, seen, dq.of_rows(queries.tokens()));
        over_queries(sums(shape.scale(), of_keys), &ds, q, seen, dk.of_rows(keys.tokens()));
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
