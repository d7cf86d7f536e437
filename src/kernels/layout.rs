//! Moving tensors between NCHW and the layouts that the convolutions multiply in: blocked transposition with an offset
//! per column, so that one routine serves every layout.

use super::wide::wide;

const TILE: usize = 16;

/// In a table of offsets: this column is left out.
pub(super) const SKIP: usize = usize::MAX;

wide! {
    /// `dst[offsets[q] + r] = src[r*step + q]` for `r < rows` and every column `q` that is not [`SKIP`]ped.
    pub(super) fn scatter(src: &[f32], step: usize, rows: usize, offsets: &[usize], dst: &mut [f32]) {
        let columns = offsets.len();
        let mut tile = [[0.0f32; TILE]; TILE];
        for r0 in (0..rows).step_by(TILE) {
            let height = TILE.min(rows - r0);
            for q0 in (0..columns).step_by(TILE) {
                let width = TILE.min(columns - q0);
                if height == TILE && width == TILE {
                    for r in 0..TILE {
                        let from = &src[(r0 + r) * step + q0..][..TILE];
                        for (q, &value) in from.iter().enumerate() {
                            tile[q][r] = value;
                        }
                    }
                } else {
                    for r in 0..height {
                        let from = &src[(r0 + r) * step + q0..][..width];
                        for (q, &value) in from.iter().enumerate() {
                            tile[q][r] = value;
                        }
                    }
                }
                for (column, &offset) in tile.iter().zip(&offsets[q0..q0 + width]) {
                    if offset != SKIP {
                        dst[offset + r0..][..height].copy_from_slice(&column[..height]);
                    }
                }
            }
        }
    }
}

wide! {
    /// The way back: `dst[r*step + q] = src[offsets[q] + r]` for `r < rows`; a skipped column becomes zero.
    pub(super) fn gather(src: &[f32], offsets: &[usize], rows: usize, dst: &mut [f32], step: usize) {
        let columns = offsets.len();
        let mut tile = [[0.0f32; TILE]; TILE];
        for r0 in (0..rows).step_by(TILE) {
            let height = TILE.min(rows - r0);
            for q0 in (0..columns).step_by(TILE) {
                let width = TILE.min(columns - q0);
                for (column, &offset) in tile.iter_mut().zip(&offsets[q0..q0 + width]) {
                    if offset == SKIP {
                        *column = [0.0; TILE];
                    } else {
                        column[..height].copy_from_slice(&src[offset + r0..][..height]);
                    }
                }
                for r in 0..height {
                    let to = &mut dst[(r0 + r) * step + q0..][..width];
                    if width == TILE {
                        for q in 0..TILE {
                            to[q] = tile[q][r];
                        }
                    } else {
                        for q in 0..width {
                            to[q] = tile[q][r];
                        }
                    }
                }
            }
        }
    }
}

/// Offsets that take one image's `[channels][pixels]` to `[pixels][channels][lanes]`, one image a lane.
pub(super) fn to_lanes(channels: usize, pixels: usize, lanes: usize) -> Vec<usize> {
    let mut offsets = Vec::with_capacity(channels * pixels);
    for channel in 0..channels {
        offsets.extend((0..pixels).map(|pixel| (pixel * channels + channel) * lanes));
    }
    offsets
}

/// `[outputs][inputs][taps]` to `[outputs][kept taps][inputs]`: the weights as the forward product reads them.
/// `taps` lists the kept taps, in order; `all` is how many `src` has.
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
            let mut offsets: Vec<usize> = (0..columns).rev().map(|q| q * (rows + 1)).collect();
            offsets[columns / 2] = SKIP;
            let mut moved = vec![-1.0; columns * (rows + 1)];
            scatter(&src, step, rows, &offsets, &mut moved);
            let mut back = vec![-1.0; rows * step];
            gather(&moved, &offsets, rows, &mut back, step);
            for (r, q) in (0..rows).flat_map(|r| (0..columns).map(move |q| (r, q))) {
                let expected = if q == columns / 2 { 0.0 } else { src[r * step + q] };
                assert_eq!(back[r * step + q], expected);
                if q != columns / 2 {
                    assert_eq!(moved[(columns - 1 - q) * (rows + 1) + r], expected);
                }
            }
        }
    }

    #[test]
    fn kept_taps_come_out_in_order() {
        let src: Vec<f32> = (0..2 * 3 * 4).map(|i| i as f32).collect();
        let mut dst = vec![0.0; 2 * 2 * 3];
        taps_outward(&src, 3, 4, &[1, 3], &mut dst);
        assert_eq!(dst, [1., 5., 9., 3., 7., 11., 13., 17., 21., 15., 19., 23.]);
    }
}
