//! The loops of the attention over one block of scores, in rows of `keys` elements. Row `i` sees the first `visible + i`
//! keys of the block; the others have weight 0.

use super::lanes::{largest, sum};
use super::math::exp;
use super::panel::Panel;
use super::wide::wide;

wide! {
    /// Replaces scores by `exp(score - maximum)`, with the maximum over all blocks so far. `statistics` are each row's
    /// maximum and sum so far, before and after; unless this is the first block, each row of `out` is scaled as the sum is
    /// when the maximum changes.
    pub(super) fn softmax(
        scores: &mut [f32],
        keys: usize,
        visible: usize,
        statistics: &mut [[f32; 2]],
        out: &mut Panel,
        first: bool,
    ) {
        for (i, (scores, statistics)) in scores.chunks_exact_mut(keys).zip(statistics).enumerate() {
            let seen = keys.min(visible + i);
            let [old, total] = *statistics;
            let block = &scores[..seen];
            let maximum = largest(seen, old, |j| block[j]);
            for score in &mut scores[..seen] {
                *score = exp(*score - maximum);
            }
            scores[seen..].fill(0.0);
            let block = &scores[..seen];
            let correction = exp(old - maximum);
            *statistics = [maximum, total * correction + sum(seen, |j| block[j])];
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
    pub(super) fn weights(scores: &mut [f32], keys: usize, visible: usize, statistics: &[[f32; 2]]) {
        for (i, (scores, &[maximum, total])) in scores.chunks_exact_mut(keys).zip(statistics).enumerate() {
            let (seen, factor) = (keys.min(visible + i), 1.0 / total);
            for score in &mut scores[..seen] {
                *score = exp(*score - maximum) * factor;
            }
            scores[seen..].fill(0.0);
        }
    }
}

wide! {
    /// Replaces the gradients of the weights `p` by those of the scores: `p * (ds - dot)`, with each row's `dot`.
    pub(super) fn scores_gradient(p: &[f32], dots: &[f32], keys: usize, ds: &mut [f32]) {
        for ((p, ds), &dot) in p.chunks_exact(keys).zip(ds.chunks_exact_mut(keys)).zip(dots) {
            for (ds, &p) in ds.iter_mut().zip(p) {
                *ds = p * (*ds - dot);
            }
        }
    }
}
