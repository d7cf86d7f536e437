//! The loops of the attention over one block of scores, in rows of [`BLOCK`] elements. Keys that a query does not see have
//! weight 0.

use super::attention::BLOCK;
use super::direct::HEIGHT;
use super::lanes::{LANES, largest, sum};
use super::math::exp;
use super::panel::Panel;
use super::wide::wide;
use std::ops::Range;

/// Which keys of a block each query sees: the first one sees those before key `first`, each further one one more, and of these
/// each the last `width`, counted from there whether the block has as many or not.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub first: usize,
    /// The place of the block's first key in the sequence.
    pub start: usize,
    pub keys: usize,
    pub width: usize,
    /// The place of the first key that each query sees, or nothing.
    pub documents: &'a [u32],
}

impl Seen<'_> {
    /// The end of the keys that query `i` sees.
    #[inline(always)]
    pub(super) fn of(self, i: usize) -> usize {
        self.keys.min(self.first + i)
    }

    /// The first key that query `i` sees: not before [`Self::of`] if it sees none.
    #[inline(always)]
    fn from(self, i: usize) -> usize {
        let of_window = (self.first + i).saturating_sub(self.width);
        match self.documents.get(i) {
            Some(document) => of_window.max((*document as usize).saturating_sub(self.start)),
            None => of_window,
        }
    }

    /// The first query that may see key `j`.
    pub(super) fn since(self, j: usize) -> usize {
        (j + 1).saturating_sub(self.first)
    }

    /// The elements of query `i`'s row that the products read: those of the keys that it sees, and those before them or that
    /// another of its group of [`HEIGHT`] rows or columns needs, which become `unseen`.
    #[inline(always)]
    fn masked(self, i: usize, row: &mut [f32], unseen: f32) -> &mut [f32] {
        let seen = self.of(i);
        let row = &mut row[..(seen + HEIGHT - 1).next_multiple_of(LANES).min(BLOCK)];
        row[seen..].fill(unseen);
        row[..self.from(i).min(seen)].fill(unseen);
        row
    }
}

wide! {
    /// Replaces scores by `exp(score - maximum)`, with the maximum over all blocks so far. `statistics` are each row's
    /// maximum and sum so far, before and after; unless this is the first block, each row of `out` is scaled as the sum is
    /// when the maximum changes.
    pub(super) fn softmax(
        scores: &mut [f32],
        seen: Seen,
        statistics: &mut [[f32; 2]],
        out: &mut Panel,
        first: bool,
    ) {
        for (i, (scores, statistics)) in scores.chunks_exact_mut(BLOCK).zip(statistics).enumerate() {
            if seen.from(i) >= seen.of(i) {
                seen.masked(i, scores, 0.0);
                continue;
            }
            let scores = seen.masked(i, scores, f32::NEG_INFINITY);
            let [old, total] = *statistics;
            let maximum = largest(scores, old);
            for score in scores.iter_mut() {
                *score = exp(*score - maximum);
            }
            let correction = exp(old - maximum);
            *statistics = [maximum, total * correction + sum([scores], |[x]| x)];
            if !first {
                for out in out.row(i) {
                    *out *= correction;
                }
            }
        }
    }
}

wide! {
    /// Divides each row of `out` by its sum of exponentials.
    pub(super) fn normalise(out: &mut Panel, statistics: &[[f32; 2]]) {
        for (i, &[_, total]) in statistics.iter().enumerate() {
            let factor = 1.0 / total;
            for out in out.row(i) {
                *out *= factor;
            }
        }
    }
}

wide! {
    /// Replaces scores by the softmax's weights.
    pub(super) fn weights(scores: &mut [f32], seen: Seen, statistics: &[[f32; 2]]) {
        for (i, (scores, &[maximum, total])) in scores.chunks_exact_mut(BLOCK).zip(statistics).enumerate() {
            let factor = 1.0 / total;
            for score in seen.masked(i, scores, f32::NEG_INFINITY) {
                *score = exp(*score - maximum) * factor;
            }
        }
    }
}

wide! {
    /// Replaces the gradients of the weights `p` by those of the scores: `p * (ds - dot)`, with each row's `dot`.
    pub(super) fn scores_gradient(p: &[f32], dots: &[f32], seen: Seen, ds: &mut [f32]) {
        let rows = p.chunks_exact(BLOCK).zip(ds.chunks_exact_mut(BLOCK)).zip(dots);
        for (i, ((p, ds), &dot)) in rows.enumerate() {
            for (ds, &p) in seen.masked(i, ds, 0.0).iter_mut().zip(p) {
                *ds = p * (*ds - dot);
            }
        }
    }
}

wide! {
    /// `dots[t] = (row t of dy) . (row t of out)`, in rows of `width` elements of which `columns` count.
    pub(super) fn row_dots(dy: &[f32], out: &[f32], width: usize, columns: Range<usize>, dots: &mut [f32]) {
        let rows = dy.chunks_exact(width).zip(out.chunks_exact(width));
        for (dot, (dy, out)) in dots.iter_mut().zip(rows) {
            let (dy, out) = (&dy[columns.clone()], &out[columns.clone()]);
            *dot = sum([dy, out], |[dy, out]| dy * out);
        }
    }
}
