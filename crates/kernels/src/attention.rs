//! Self-attention, causal or not, with its gradients. Queries and keys are processed in blocks, with the softmax computed online,
//! so that nothing of size `time` x `time` is kept. Source: FlashAttention (Dao et al., 2022, arXiv:2205.14135), without
//! its dropout. Several heads of queries may share one of keys and values (Ainslie et al., 2023, arXiv:2305.13245). A sequence may
//! consist of several documents, whose tokens do not see those of others; blocks that see none of each other are skipped.

use super::attention_loops::{Seen, normalise, row_dots, scores_gradient, softmax, weights};
use super::direct::{Direct, Needed, WIDTH, product};
use super::layout::scatter;
use super::panel::Panel;
use super::product::Matrix;
use super::tasks::{TaskBuffers, for_each, scratch};
use std::ops::Range;

/// Sizes of an attention. A row of `qkv` holds the query of one token, of `heads * head` elements, then its key and its
/// value, of `kv_heads * head` elements each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub time: usize,
    /// Heads of each query.
    pub heads: usize,
    /// Heads of each key and value; divides `heads`. As many neighbouring heads of queries share one.
    pub kv_heads: usize,
    /// Elements of one head.
    pub head: usize,
    /// Which tokens each token sees.
    pub sees: Sees,
}

/// Which tokens of a sequence a token sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sees {
    /// All.
    All,
    /// Itself and those before it.
    Past,
    /// Itself and those before it, so many in all: at least one.
    Window(usize),
}

/// Queries, or keys, in one block. A row of scores has as many elements, whatever the number of keys.
pub(super) const BLOCK: usize = 64;

impl AttentionShape {
    fn width(&self) -> usize {
        self.heads * self.head
    }

    /// Elements of a token's query, key and value.
    pub fn row(&self) -> usize {
        (self.heads + 2 * self.kv_heads) * self.head
    }

    /// Heads of queries that share one of keys and values.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    fn check(&self, qkv: usize, documents: &[u32], out: usize, statistics: usize) {
        let rows = self.batch * self.time;
        let fits = |(row, start): (usize, &u32)| {
            let at = row % self.time;
            *start as usize <= at && (at == 0 || documents[row - 1] <= *start)
        };
        assert!(
            documents.is_empty()
                || self.sees != Sees::All
                    && documents.len() == rows
                    && documents.iter().enumerate().all(fits),
            "documents of an attention: {self:?}"
        );
        assert!(self.heads.is_multiple_of(self.kv_heads), "heads of an attention: {self:?}");
        assert!(self.sees != Sees::Window(0), "window of an attention: {self:?}");
        assert_eq!(qkv, rows * self.row(), "length of an attention's input: {self:?}");
        assert_eq!(out, rows * self.width(), "length of an attention's output: {self:?}");
        assert_eq!(statistics, rows * self.heads, "length of an attention's statistics: {self:?}");
    }

    fn blocks(&self) -> impl Iterator<Item = Block> + use<> {
        let time = self.time;
        (0..time).step_by(BLOCK).map(move |start| Block { start, len: BLOCK.min(time - start) })
    }

    /// The blocks of keys that a block of queries sees. `documents` are those of their sequence.
    fn keys(&self, documents: &[u32], queries: Block) -> impl Iterator<Item = Block> + use<> {
        let of_window = match self.sees {
            Sees::Window(width) => (queries.start + 1).saturating_sub(width),
            _ => 0,
        };
        let of_document = documents.get(queries.start).map_or(0, |start| *start as usize);
        let first = of_window.max(of_document) / BLOCK;
        let last = match self.sees {
            Sees::All => usize::MAX,
            _ => queries.start,
        };
        self.blocks().skip(first).take_while(move |keys| keys.start <= last)
    }

    fn seen<'d>(&self, documents: &'d [u32], queries: Block, keys: Block) -> Seen<'d> {
        let documents = documents.get(queries.tokens()).unwrap_or_default();
        let all = Seen { first: keys.len, start: keys.start, keys: keys.len, width: usize::MAX, documents };
        // Queries never come before the keys that they may see.
        let ahead = || queries.start - keys.start + 1;
        match self.sees {
            Sees::All => all,
            Sees::Past => Seen { first: ahead(), ..all },
            Sees::Window(width) => Seen { first: ahead(), width, ..all },
        }
    }

    /// The documents of sequence `s`, of those of all.
    fn documents_of<'d>(&self, documents: &'d [u32], s: usize) -> &'d [u32] {
        documents.get(s * self.time..(s + 1) * self.time).unwrap_or_default()
    }

    fn scale(&self) -> f32 {
        1.0 / (self.head as f32).sqrt()
    }

    /// Query (0), key (1) or value (2) of head `h`, from token `start` of a sequence.
    fn part<'a>(&self, qkv: &'a [f32], which: usize, h: usize, start: usize) -> Matrix<'a> {
        let before = [0, self.heads, self.heads + self.kv_heads][which] + h;
        Matrix::rows(&qkv[start * self.row() + before * self.head..], self.row())
    }

    /// Keys (1) or values (2) of their head `h`, transposed within their blocks.
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

/// `out[t] = sum over the s that t sees of softmax(q[t] k[s] / sqrt(head)) v[s]` for each head of each sequence.
/// `qkv` is `[batch, time, heads + 2 * kv_heads, head]`, `out` `[batch, time, heads, head]`. `documents` is empty, or `[batch, time]`: the
/// first token of each token's document, by its place in the sequence, before which it sees none. `statistics` `[batch, heads, time]`
/// becomes each row's maximum and sum of exponentials, from which the backward pass computes the weights again.
///
/// Panics if a slice's length does not match `shape`, or a document begins after its tokens or before the one before; so does [`backward`]. Documents are for
/// tokens that do not see later ones.
pub fn forward(
    shape: AttentionShape,
    qkv: &[f32],
    documents: &[u32],
    out: &mut [f32],
    statistics: &mut [[f32; 2]],
    parallelism: usize,
) {
    shape.check(qkv.len(), documents, out.len(), statistics.len());
    if out.is_empty() {
        return;
    }
    let sequence = shape.time * shape.width();
    let heads = out
        .chunks_mut(sequence)
        .flat_map(|out| shape.heads_of(out, shape.width()))
        .zip(statistics.chunks_mut(shape.time));
    let tasks: Vec<_> = heads.enumerate().collect();
    let input = shape.time * shape.row();
    for_each(parallelism, tasks.into_iter(), |(task, (mut out, statistics))| {
        let (s, h) = (task / shape.heads, task % shape.heads);
        let qkv = &qkv[s * input..][..input];
        let documents = shape.documents_of(documents, s);
        let keys = shape.transposed(qkv, 1, h / shape.group());
        let head = Queries { shape: &shape, h, qkv, documents, keys: &keys };
        for queries in shape.blocks() {
            head.attend(queries, &mut statistics[queries.tokens()], out.of_rows(queries.tokens()));
        }
    });
}

/// One head of one sequence in the forward pass.
struct Queries<'a> {
    shape: &'a AttentionShape,
    h: usize,
    qkv: &'a [f32],
    documents: &'a [u32],
    keys: &'a Transposed,
}

impl Queries<'_> {
    /// The output for a block of queries.
    fn attend(&self, queries: Block, statistics: &mut [[f32; 2]], mut out: Panel) {
        let &Self { shape, h, qkv, documents, keys: keys_transposed } = self;
        statistics.fill([f32::NEG_INFINITY, 0.0]);
        let mut scores = scratch(queries.len * BLOCK);
        let q = shape.part(qkv, 0, h, queries.start);
        for (i, keys) in shape.keys(documents, queries).enumerate() {
            let (seen, first) = (shape.seen(documents, queries, keys), i == 0);
            with_keys(shape.scale(), q, keys_transposed.block(keys), seen, &mut scores);
            softmax(&mut scores, seen, statistics, &mut out, first);
            let sums = Direct { scale: 1.0, accumulate: !first };
            let values = shape.part(qkv, 2, h / shape.group(), keys.start);
            over_keys(sums, &scores, values, seen, out.of_rows(0..queries.len));
        }
        normalise(&mut out, statistics);
    }
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
    /// Its documents.
    pub documents: &'a [u32],
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
    let AttentionInputs { qkv, documents, out, statistics } = saved;
    shape.check(qkv.len(), documents, out.len(), statistics.len());
    assert_eq!(
        (dy.len(), dqkv.len()),
        (out.len(), qkv.len()),
        "lengths of an attention's gradients: {shape:?}"
    );
    if out.is_empty() {
        return;
    }
    let (sequence, input) = (shape.time * shape.width(), shape.time * shape.row());
    let groups = dqkv.chunks_mut(input).flat_map(|dqkv| {
        let mut q: Vec<_> = shape.heads_of(dqkv, shape.row()).collect();
        let v = q.split_off(shape.heads + shape.kv_heads);
        let k = q.split_off(shape.heads);
        let mut q = q.into_iter();
        k.into_iter().zip(v).map(move |(k, v)| (q.by_ref().take(shape.group()).collect::<Vec<_>>(), [k, v]))
    });
    let tasks: Vec<_> = groups.zip(statistics.chunks(shape.group() * shape.time)).enumerate().collect();
    for_each(parallelism, tasks.into_iter(), |(task, ((dq, mut dkv), statistics))| {
        let (s, shared) = (task / shape.kv_heads, task % shape.kv_heads);
        let (dy, out) = (&dy[s * sequence..][..sequence], &out[s * sequence..][..sequence]);
        let (qkv, documents) = (&qkv[s * input..][..input], shape.documents_of(documents, s));
        let [keys, values] = [1, 2].map(|which| shape.transposed(qkv, which, shared));
        let mut dots = scratch(shape.time);
        for (i, (mut dq, statistics)) in dq.into_iter().zip(statistics.chunks(shape.time)).enumerate() {
            let h = shared * shape.group() + i;
            row_dots(dy, out, shape.width(), h * shape.head..(h + 1) * shape.head, &mut dots);
            let of_head = Queries { shape: &shape, h, qkv, documents, keys: &keys };
            let head = Head { queries: of_head, values: &values, dy, statistics, dots: &dots };
            for queries in shape.blocks() {
                for (j, keys) in shape.keys(documents, queries).enumerate() {
                    head.add_gradients(queries, keys, j == 0, &mut dq, &mut dkv);
                }
            }
        }
    });
}

/// One head of one sequence in the backward pass.
struct Head<'a> {
    queries: Queries<'a>,
    values: &'a Transposed,
    dy: &'a [f32],
    statistics: &'a [[f32; 2]],
    dots: &'a [f32],
}

impl Head<'_> {
    /// Adds what a block of queries and one of keys, the queries' first or not, contribute to the gradients; each part's first block
    /// overwrites them.
    fn add_gradients(
        &self,
        queries: Block,
        keys: Block,
        is_first: bool,
        dq: &mut Panel,
        [dk, dv]: &mut [Panel; 2],
    ) {
        let &Queries { shape, h, qkv, documents, keys: keys_transposed } = &self.queries;
        let (dy, seen) = (self.dy, shape.seen(documents, queries, keys));
        let shared = h / shape.group();
        let [q, k] = [shape.part(qkv, 0, h, queries.start), shape.part(qkv, 1, shared, keys.start)];
        let dy = shape.of_out(dy, h, queries.start);
        let mut p = scratch(queries.len * BLOCK);
        with_keys(shape.scale(), q, keys_transposed.block(keys), seen, &mut p);
        weights(&mut p, seen, &self.statistics[queries.tokens()]);
        let mut ds = scratch(queries.len * BLOCK);
        with_keys(1.0, dy, self.values.block(keys), seen, &mut ds);
        scores_gradient(&p, &self.dots[queries.tokens()], seen, &mut ds);

        // The first queries that see these keys.
        let first = if shape.sees == Sees::All { 0 } else { keys.start };
        let of_keys = queries.start > first || !h.is_multiple_of(shape.group());
        let sums = |scale, accumulate| Direct { scale, accumulate };
        over_queries(sums(1.0, of_keys), &p, dy, seen, dv.of_rows(keys.tokens()));
        over_keys(sums(shape.scale(), !is_first), &ds, k, seen, dq.of_rows(queries.tokens()));
        over_queries(sums(shape.scale(), of_keys), &ds, q, seen, dk.of_rows(keys.tokens()));
    }
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
