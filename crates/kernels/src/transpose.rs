//! The transposition of a block of 16 x 16 numbers, with shuffles where the processor has AVX.

#![allow(unsafe_code)]

/// Side of a block: a cache line.
pub(super) const TILE: usize = 16;

pub(super) type Tile = [[f32; TILE]; TILE];

/// Transposes blocks.
#[derive(Clone, Copy)]
pub(super) struct Transposer {
    avx: bool,
}

impl Transposer {
    pub(super) fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        let avx = is_x86_feature_detected!("avx");
        #[cfg(not(target_arch = "x86_64"))]
        let avx = false;
        Self { avx }
    }

    /// `to[i][j] = from[j][i]`.
    #[inline(always)]
    pub(super) fn run(self, from: &Tile, to: &mut Tile) {
        #[cfg(target_arch = "x86_64")]
        if self.avx {
            // SAFETY: `avx` is true only if the processor has AVX, the function's only requirement.
            return unsafe { with_avx(from, to) };
        }
        plain(from, to);
    }
}

fn plain(from: &Tile, to: &mut Tile) {
    for (j, row) in from.iter().enumerate() {
        for (to, &value) in to.iter_mut().zip(row) {
            to[j] = value;
        }
    }
}

/// In blocks of 8 x 8: each register gets four numbers of a row and four of the row four below; two rounds of shuffles
/// then make columns of these.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
fn with_avx(from: &Tile, to: &mut Tile) {
    use std::arch::x86_64::*;
    const HALF: usize = TILE / 2;
    for (top, left) in [(0, 0), (0, HALF), (HALF, 0), (HALF, HALF)] {
        for columns in [left, left + 4] {
            let two = |row: usize| {
                let (upper, lower) =
                    (&from[top + row][columns..columns + 4], &from[top + row + 4][columns..columns + 4]);
                // SAFETY: both slices have the four numbers that are read.
                let (upper, lower) = unsafe { (_mm_loadu_ps(upper.as_ptr()), _mm_loadu_ps(lower.as_ptr())) };
                _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(upper), lower)
            };
            let rows = [two(0), two(1), two(2), two(3)];
            let (a, b) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
            let (c, d) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
            let done = [
                _mm256_shuffle_ps::<0b0100_0100>(a, c),
                _mm256_shuffle_ps::<0b1110_1110>(a, c),
                _mm256_shuffle_ps::<0b0100_0100>(b, d),
                _mm256_shuffle_ps::<0b1110_1110>(b, d),
            ];
            for (column, eight) in done.into_iter().enumerate() {
                let place = &mut to[columns + column][top..top + HALF];
                // SAFETY: the slice has the eight numbers that are written.
                unsafe { _mm256_storeu_ps(place.as_mut_ptr(), eight) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_transposed_either_way() {
        let from: Tile = std::array::from_fn(|i| std::array::from_fn(|j| (i * TILE + j) as f32));
        let expected: Tile = std::array::from_fn(|i| std::array::from_fn(|j| from[j][i]));
        for transposer in [Transposer::new(), Transposer { avx: false }] {
            let mut to = [[f32::NAN; TILE]; TILE];
            transposer.run(&from, &mut to);
            assert_eq!(to, expected, "AVX: {}", transposer.avx);
        }
    }
}
