//! Products of matrices that are in the cache already, without copies of the operands, where only a part of the sums or of
//! the results is needed.

#![allow(unsafe_code)]

use super::panel::Panel;
use super::product::Matrix;
use super::wide::wide;
use std::ops::Range;

/// Rows and columns of the results that are summed at a time, in registers.
pub(super) const HEIGHT: usize = 6;
pub(super) const WIDTH: usize = 16;

/// `dst[i][j] = scale * sum over k of lhs[i][k] * rhs[k][j]`, added to `dst` with `accumulate`. Every sum is in the order
/// of `k`, with one rounding for each product and sum, so its bits depend on nothing but the numbers.
#[derive(Clone, Copy)]
pub(super) struct Direct {
    pub scale: f32,
    pub accumulate: bool,
}

/// What is needed of some rows of a product: the first columns, and the sums over some `k`.
pub(super) struct Needed {
    pub columns: usize,
    pub inner: Range<usize>,
}

/// Computes what `needed` says of each group of rows; groups begin at multiples of [`HEIGHT`] and have as many rows, but
/// for the last one. `rhs` is in rows.
///
/// Panics if an operand is too short for that.
pub(super) fn product<N: Fn(Range<usize>) -> Needed>(
    direct: Direct,
    dst: Panel,
    lhs: Matrix,
    rhs: Matrix,
    needed: N,
) {
    #[cfg(target_arch = "x86_64")]
    if !is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
    {
        // SAFETY: a safe function whose only requirements, AVX2 and FMA, were just checked.
        return unsafe { with_vectors_of_8(direct, dst, lhs, rhs, needed) };
    }
    with_any_vectors(direct, dst, lhs, rhs, needed);
}

wide! {
    fn with_any_vectors[N: Fn(Range<usize>) -> Needed](
        direct: Direct,
        dst: Panel,
        lhs: Matrix,
        rhs: Matrix,
        needed: N,
    ) {
        each_tile::<AnyVectors, N>(direct, dst, lhs, rhs, needed);
    }
}

/// With its 16 registers the compiler keeps the sums in memory and adds them one by one.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_vectors_of_8<N: Fn(Range<usize>) -> Needed>(
    direct: Direct,
    dst: Panel,
    lhs: Matrix,
    rhs: Matrix,
    needed: N,
) {
    each_tile::<VectorsOf8, N>(direct, dst, lhs, rhs, needed);
}

#[inline(always)]
fn each_tile<S: Sums, N: Fn(Range<usize>) -> Needed>(
    direct: Direct,
    mut dst: Panel,
    lhs: Matrix,
    rhs: Matrix,
    needed: N,
) {
    assert_eq!(rhs.column_step, 1, "a right operand in rows");
    let rows = dst.rows();
    for start in (0..rows).step_by(HEIGHT) {
        let group = start..rows.min(start + HEIGHT);
        let Needed { columns, inner } = needed(group.clone());
        assert!(columns <= dst.columns(), "{columns} columns of {}", dst.columns());
        assert!(lhs.holds(group.end, inner.end), "left operand too short");
        assert!(rhs.holds(inner.end, columns), "right operand too short");
        let mut column = 0;
        while column < columns {
            let width = match columns - column {
                WIDTH.. => WIDTH,
                8.. => 8,
                _ => 1,
            };
            let tile = Tile { row: start, column, inner: inner.clone() };
            // SAFETY: the rows of the group and `width` columns from `column` on are in `dst`; the operands hold what the
            // sums of a tile read, as asserted above. The caller has the instructions of `S`.
            unsafe {
                match width {
                    WIDTH => tile.run_rows::<S, WIDTH>(group.len(), direct, &mut dst, lhs, rhs),
                    8 => tile.run_rows::<S, 8>(group.len(), direct, &mut dst, lhs, rhs),
                    _ => tile.run_rows::<AnyVectors, 1>(group.len(), direct, &mut dst, lhs, rhs),
                }
            }
            column += width;
        }
    }
}

/// A part of the result whose sums are in registers.
struct Tile {
    row: usize,
    column: usize,
    inner: Range<usize>,
}

/// How the sums of a tile are computed: their bits are the same.
trait Sums {
    /// The sums of `H` rows and `W` columns. The elements of `lhs` in these rows and of `rhs` in these columns must be in their slices, for
    /// every `k` in `inner`, and the processor must have the instructions.
    unsafe fn of<const H: usize, const W: usize>(tile: Tile, lhs: Matrix, rhs: Matrix) -> [[f32; W]; H];
}

/// In vectors of the compiler's choice.
struct AnyVectors;

impl Sums for AnyVectors {
    #[inline(always)]
    unsafe fn of<const H: usize, const W: usize>(tile: Tile, lhs: Matrix, rhs: Matrix) -> [[f32; W]; H] {
        let mut sums = [[0.0f32; W]; H];
        for k in tile.inner {
            let right = k * rhs.row_step + tile.column;
            // SAFETY: as the caller promises.
            let right: &[f32; W] = unsafe { &*rhs.values.as_ptr().add(right).cast() };
            for (h, sums) in sums.iter_mut().enumerate() {
                let left = (tile.row + h) * lhs.row_step + k * lhs.column_step;
                // SAFETY: as the caller promises.
                let left = unsafe { *lhs.values.get_unchecked(left) };
                for (sum, &right) in sums.iter_mut().zip(right) {
                    *sum = left.mul_add(right, *sum);
                }
            }
        }
        sums
    }
}

/// For AVX2 with FMA; `W` is 8 or 16.
#[cfg(target_arch = "x86_64")]
struct VectorsOf8;

#[cfg(target_arch = "x86_64")]
impl Sums for VectorsOf8 {
    #[inline(always)]
    unsafe fn of<const H: usize, const W: usize>(tile: Tile, lhs: Matrix, rhs: Matrix) -> [[f32; W]; H] {
        use std::arch::x86_64::{
            _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
        };
        const { assert!(W == 8 || W == 16) };
        let mut out = [[0.0f32; W]; H];
        // SAFETY: as the caller promises; a vector of `out` is 8 of its `W` elements.
        unsafe {
            let mut sums = [[_mm256_setzero_ps(); 2]; H];
            for k in tile.inner {
                let from = rhs.values.as_ptr().add(k * rhs.row_step + tile.column);
                let mut right = [_mm256_setzero_ps(); 2];
                for (v, right) in right.iter_mut().enumerate().take(W / 8) {
                    *right = _mm256_loadu_ps(from.add(8 * v));
                }
                for (h, sums) in sums.iter_mut().enumerate() {
                    let left = (tile.row + h) * lhs.row_step + k * lhs.column_step;
                    let left = _mm256_set1_ps(*lhs.values.get_unchecked(left));
                    for (sum, right) in sums.iter_mut().zip(right).take(W / 8) {
                        *sum = _mm256_fmadd_ps(left, right, *sum);
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                for (v, sum) in sums.into_iter().enumerate().take(W / 8) {
                    _mm256_storeu_ps(out.as_mut_ptr().add(8 * v), sum);
                }
            }
        }
        out
    }
}

impl Tile {
    /// See [`Sums::of`]; `height` is at most [`HEIGHT`], and the rows and columns are in `dst`.
    #[inline(always)]
    unsafe fn run_rows<S: Sums, const W: usize>(
        self,
        height: usize,
        direct: Direct,
        dst: &mut Panel,
        lhs: Matrix,
        rhs: Matrix,
    ) {
        // SAFETY: as the caller promises.
        unsafe {
            match height {
                1 => self.run::<S, 1, W>(direct, dst, lhs, rhs),
                2 => self.run::<S, 2, W>(direct, dst, lhs, rhs),
                3 => self.run::<S, 3, W>(direct, dst, lhs, rhs),
                4 => self.run::<S, 4, W>(direct, dst, lhs, rhs),
                5 => self.run::<S, 5, W>(direct, dst, lhs, rhs),
                _ => self.run::<S, HEIGHT, W>(direct, dst, lhs, rhs),
            }
        }
    }

    /// As [`Self::run_rows`], of `H` rows.
    #[inline(always)]
    unsafe fn run<S: Sums, const H: usize, const W: usize>(
        self,
        direct: Direct,
        dst: &mut Panel,
        lhs: Matrix,
        rhs: Matrix,
    ) {
        let (row, column) = (self.row, self.column);
        // SAFETY: as the caller promises.
        let sums = unsafe { S::of::<H, W>(self, lhs, rhs) };
        for (h, sums) in sums.iter().enumerate() {
            let row = &mut dst.row(row + h)[column..][..W];
            for (dst, &sum) in row.iter_mut().zip(sums) {
                let old = if direct.accumulate { *dst } else { 0.0 };
                *dst = direct.scale.mul_add(sum, old);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{bits, noise};
    use super::*;

    fn all(columns: usize, inner: usize) -> impl Fn(Range<usize>) -> Needed {
        move |_| Needed { columns, inner: 0..inner }
    }

    /// `scale` times the sum over `inner`, added to `old`, each product and sum rounded once.
    fn sum(
        lhs: Matrix,
        rhs: Matrix,
        (i, j): (usize, usize),
        inner: Range<usize>,
        scale: f32,
        old: f32,
    ) -> f32 {
        let at = |m: Matrix, i, j| m.values[i * m.row_step + j * m.column_step];
        let sum = inner.fold(0.0f32, |sum, k| at(lhs, i, k).mul_add(at(rhs, k, j), sum));
        scale.mul_add(sum, old)
    }

    #[test]
    fn every_sum_is_that_of_the_definition_to_the_last_bit() {
        let values = noise(20_000, 3);
        for (rows, columns, inner) in
            [(1, 1, 1), (6, 16, 4), (5, 7, 0), (13, 41, 9), (64, 64, 33), (8, 24, 3)]
        {
            let left = Matrix::rows(&values[5..], inner + 2);
            let left_by_columns = Matrix::rows(&values[9..], rows + 1).transposed();
            let rhs = Matrix::rows(&values[1..], columns + 3);
            for (lhs, accumulate) in [(left, false), (left_by_columns, true)] {
                let mut dst: Vec<f32> = noise(rows * (columns + 1), 8);
                let before = dst.clone();
                let panel = Panel::new(&mut dst, rows, columns, columns + 1);
                product(Direct { scale: 0.3, accumulate }, panel, lhs, rhs, all(columns, inner));
                // What other processors use.
                let mut again = before.clone();
                let panel = Panel::new(&mut again, rows, columns, columns + 1);
                with_any_vectors(Direct { scale: 0.3, accumulate }, panel, lhs, rhs, all(columns, inner));
                assert_eq!(bits(&again), bits(&dst));
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    let mut again = before.clone();
                    let panel = Panel::new(&mut again, rows, columns, columns + 1);
                    let direct = Direct { scale: 0.3, accumulate };
                    // SAFETY: the processor has AVX2 and FMA.
                    unsafe { with_vectors_of_8(direct, panel, lhs, rhs, all(columns, inner)) };
                    assert_eq!(bits(&again), bits(&dst));
                }
                for (at, (&dst, &before)) in dst.iter().zip(&before).enumerate() {
                    let (i, j) = (at / (columns + 1), at % (columns + 1));
                    let old = if accumulate { before } else { 0.0 };
                    let expected =
                        if j == columns { before } else { sum(lhs, rhs, (i, j), 0..inner, 0.3, old) };
                    assert_eq!(dst.to_bits(), expected.to_bits(), "{rows} x {columns} x {inner}: ({i}, {j})");
                }
            }
        }
    }

    /// As in causal attention: other elements of the operands are not read, other elements of the result not written.
    #[test]
    fn only_what_is_needed_is_computed() {
        let (rows, columns, inner) = (20, 32, 20);
        let mut values = noise(rows * inner, 1);
        // Row `i` may use `k <= i` of its group only.
        for (i, row) in values.chunks_exact_mut(inner).enumerate() {
            let group_end = (i / HEIGHT + 1) * HEIGHT;
            row[group_end.min(inner)..].fill(f32::NAN);
        }
        let right = noise(inner * columns, 2);
        let (lhs, rhs) = (Matrix::rows(&values, inner), Matrix::rows(&right, columns));
        let mut dst = vec![7.0; rows * columns];
        product(
            Direct { scale: 1.0, accumulate: false },
            Panel::whole(&mut dst, columns),
            lhs,
            rhs,
            |rows| Needed { columns: if rows.start < 12 { 16 } else { columns }, inner: 0..rows.end },
        );
        for (at, &got) in dst.iter().enumerate() {
            let (i, j) = (at / columns, at % columns);
            let end = ((i / HEIGHT + 1) * HEIGHT).min(rows);
            let needed = i >= 12 || j < 16;
            assert_eq!(got, if needed { sum(lhs, rhs, (i, j), 0..end, 1.0, 0.0) } else { 7.0 }, "({i}, {j})");
        }
    }

    fn run(lhs: &[f32], rhs: &[f32], columns: usize, inner: usize) {
        let mut dst = [0.0; 8];
        let (lhs, rhs) = (Matrix::rows(lhs, 3), Matrix::rows(rhs, 4));
        product(
            Direct { scale: 1.0, accumulate: false },
            Panel::whole(&mut dst, 4),
            lhs,
            rhs,
            all(columns, inner),
        );
    }

    #[test]
    #[should_panic(expected = "left operand too short")]
    fn a_short_left_operand_panics() {
        run(&[0.0; 5], &[0.0; 12], 4, 3);
    }

    #[test]
    #[should_panic(expected = "right operand too short")]
    fn a_short_right_operand_panics() {
        run(&[0.0; 6], &[0.0; 11], 4, 3);
    }

    #[test]
    #[should_panic(expected = "5 columns of 4")]
    fn too_many_columns_panic() {
        run(&[0.0; 6], &[0.0; 16], 5, 3);
    }
}
