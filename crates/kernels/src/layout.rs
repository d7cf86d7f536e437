//! Converts tensors between NCHW and the layouts of the convolutions: blocked transposition with an offset per column,
//! so that one routine handles every layout.

use super::transpose::{TILE, Tile, Transposer};
use super::wide::wide;

/// In a table of offsets: skip this column.
pub(super) const SKIP: usize = usize::MAX;

wide! {
    /// `dst[offsets[q] + r] = src[r*step + q]` for `r < rows` and every column `q` that is not [`SKIP`]ped.
    pub(super) fn scatter(src: &[f32], step: usize, rows: usize, offsets: &[usize], dst: &mut [f32]) {
        let transposer = Transposer::new();
        let (mut lines, mut columns): (Tile, Tile) = Default::default();
        for (i, offsets) in offsets.chunks(TILE).enumerate() {
            for r0 in (0..rows).step_by(TILE) {
                let height = TILE.min(rows - r0);
                for (r, line) in lines[..height].iter_mut().enumerate() {
                    copy(&src[(r0 + r) * step + i * TILE..][..offsets.len()], line);
                }
                transposer.run(&lines, &mut columns);
                for (column, &offset) in columns.iter().zip(offsets) {
                    if offset != SKIP {
                        copy(&column[..height], &mut dst[offset + r0..][..height]);
                    }
                }
            }
        }
    }
}

wide! {
    /// The inverse: `dst[r*step + q] = src[offsets[q] + r]` for `r < rows` and every column `q`; none is skipped.
    pub(super) fn gather(src: &[f32], offsets: &[usize], rows: usize, dst: &mut [f32], step: usize) {
        let transposer = Transposer::new();
        let (mut lines, mut columns): (Tile, Tile) = Default::default();
        for (i, offsets) in offsets.chunks(TILE).enumerate() {
            for r0 in (0..rows).step_by(TILE) {
                let height = TILE.min(rows - r0);
                for (column, &offset) in columns.iter_mut().zip(offsets) {
                    copy(&src[offset + r0..][..height], column);
                }
                transposer.run(&columns, &mut lines);
                for (r, line) in lines[..height].iter().enumerate() {
                    copy(&line[..offsets.len()], &mut dst[(r0 + r) * step + i * TILE..][..offsets.len()]);
                }
            }
        }
    }
}

/// Copies up to `TILE` elements; a full tile without a function call.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    if from.len() == TILE {
        to[..TILE].copy_from_slice(&from[..TILE]);
    } else {
        for (to, from) in to.iter_mut().zip(from) {
            *to = *from;
        }
    }
}

/// Offsets that transpose one image's `[channels][pixels]` to `[pixels][channels][lanes]`, one image per lane.
pub(super) fn to_lanes(channels: usize, pixels: usize, lanes: usize) -> Vec<usize> {
    let mut offsets = Vec::with_capacity(channels * pixels);
    for channel in 0..channels {
        offsets.extend((0..pixels).map(|pixel| (pixel * channels + channel) * lanes));
    }
    offsets
}

/// `[outputs][inputs][taps]` to `[outputs][kept taps][inputs]`, the order of the forward product. `taps` lists the kept
/// taps in order; `all` is the number of taps in `src`.
pub(super) fn taps_outward(src: &[f32], inputs: usize, all: usize, taps: &[usize], dst: &mut [f32]) {
    for (src, dst) in src.chunks_exact(inputs * all).zip(dst.chunks_exact_mut(inputs * taps.len())) {
        for (&tap, dst) in taps.iter().zip(dst.chunks_exact_mut(inputs)) {
            for (to, from) in dst.iter_mut().zip(src[tap..].iter().step_by(all)) {
                *to = *from;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scatter_and_gather_are_inverse_transpositions() {
        for (rows, columns) in [(1, 1), (16, 16), (5, 40), (33, 17), (48, 64)] {
            let step = columns + 2;
            let src: Vec<f32> = (0..rows * step).map(|i| i as f32).collect();
            let offsets: Vec<usize> = (0..columns).rev().map(|q| q * (rows + 1)).collect();
            let mut some = offsets.clone();
            some[columns / 2] = SKIP;
            let mut moved = vec![-1.0; columns * (rows + 1)];
            scatter(&src, step, rows, &some, &mut moved);
            let mut back = vec![-1.0; rows * step];
            gather(&moved, &offsets, rows, &mut back, step);
            for (r, q) in (0..rows).flat_map(|r| (0..columns).map(move |q| (r, q))) {
                let expected = if q == columns / 2 { -1.0 } else { src[r * step + q] };
                assert_eq!(moved[offsets[q] + r], expected);
                assert_eq!(back[r * step + q], expected);
            }
        }
    }

    #[test]
    fn kept_taps_are_in_order() {
        let src: Vec<f32> = (0..2 * 3 * 4).map(|i| i as f32).collect();
        let mut dst = vec![0.0; 2 * 2 * 3];
        taps_outward(&src, 3, 4, &[1, 3], &mut dst);
        assert_eq!(dst, [1., 5., 9., 3., 7., 11., 13., 17., 21., 15., 19., 23.]);
    }
}
