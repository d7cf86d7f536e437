//! Matrix products, as a checked call of the `gemm` crate. They run on the calling thread only.

#![allow(unsafe_code)]

use super::panel::Panel;

/// A matrix in a slice: element (row, column) is at `row * row_step + column * column_step`.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    /// Those of the matrix, and others between its rows or columns.
    pub values: &'a [f32],
    pub(crate) row_step: usize,
    pub(crate) column_step: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements, one after the other.
    pub fn rows(values: &'a [f32], width: usize) -> Self {
        Self { values, row_step: width, column_step: 1 }
    }

    /// The same elements with rows and columns exchanged; nothing is moved.
    pub fn transposed(self) -> Self {
        Self { values: self.values, row_step: self.column_step, column_step: self.row_step }
    }

    /// Whether all elements of `rows` x `columns` are in the slice.
    pub(super) fn holds(&self, rows: usize, columns: usize) -> bool {
        if rows == 0 || columns == 0 {
            return true;
        }
        let last_row = (rows - 1).checked_mul(self.row_step);
        let last_column = (columns - 1).checked_mul(self.column_step);
        let last = last_row.zip(last_column).and_then(|(row, column)| row.checked_add(column));
        last.is_some_and(|last| last < self.values.len())
    }
}

/// `dst = scale * lhs * rhs`, for `lhs` of as many rows and `rhs` of as many columns as `dst`. With `accumulate` the
/// product is added to `dst`, else `dst` is overwritten (its old content never matters).
pub struct MatMul {
    /// Columns of `lhs` and rows of `rhs`.
    pub inner: usize,
    /// The factor of the product.
    pub scale: f32,
    /// Whether `dst` is added to.
    pub accumulate: bool,
}

impl MatMul {
    /// Computes the product on the calling thread.
    ///
    /// # Panics
    /// An operand is too short.
    pub fn run(&self, mut dst: Panel, lhs: Matrix, rhs: Matrix) {
        let &MatMul { inner, scale, accumulate } = self;
        let (rows, columns) = (dst.rows(), dst.columns());
        if rows == 0 || columns == 0 {
            return;
        }
        assert!(lhs.holds(rows, inner), "left operand too short");
        assert!(rhs.holds(inner, columns), "right operand too short");
        // SAFETY: `gemm` accesses the elements (i, j) of `dst`, which are its own, and the operands' elements (i, l) and
        // (l, j) for i < rows, j < columns, l < inner; the assertions above keep these within the slices. `dst` holds
        // its elements mutably, so it overlaps neither operand. Slices are shorter than isize::MAX bytes, so the steps
        // fit isize.
        unsafe {
            gemm::gemm(
                rows,
                columns,
                inner,
                dst.as_mut_ptr(),
                1,
                dst.step() as isize,
                accumulate,
                lhs.values.as_ptr(),
                lhs.column_step as isize,
                lhs.row_step as isize,
                rhs.values.as_ptr(),
                rhs.column_step as isize,
                rhs.row_step as isize,
                1.0,
                scale,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// `dst[i + j*dst_step] (+)= sum over k of lhs[i + k*lhs_step] * rhs[k + j*rhs_step]` for `i < m`, `j < n`: a product of
/// the convolutions. The left operand and the result are contiguous in `i`, the right operand in `k`.
pub(super) struct Product {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub dst_step: usize,
    pub lhs_step: usize,
    pub rhs_step: usize,
    pub accumulate: bool,
}

impl Product {
    pub(super) fn run(&self, dst: &mut [f32], lhs: &[f32], rhs: &[f32]) {
        let &Product { m, n, k, dst_step, lhs_step, rhs_step, accumulate } = self;
        // In rows of `dst`, the operands change places.
        MatMul { inner: k, scale: 1.0, accumulate }.run(
            Panel::new(dst, n, m, dst_step),
            Matrix { values: rhs, row_step: rhs_step, column_step: 1 },
            Matrix { values: lhs, row_step: lhs_step, column_step: 1 },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_product_matches_the_definition() {
        for (m, n, k) in [(1, 1, 1), (3, 2, 5), (17, 9, 33), (48, 64, 21)] {
            let (dst_step, lhs_step, rhs_step) = (m + 3, m + 1, k + 2);
            let lhs: Vec<f32> = (0..k * lhs_step).map(|i| (i % 7) as f32 - 3.0).collect();
            let rhs: Vec<f32> = (0..n * rhs_step).map(|i| (i % 5) as f32 - 2.0).collect();
            for accumulate in [false, true] {
                let old = if accumulate { 2.0 } else { f32::NAN };
                let mut dst = vec![old; n * dst_step];
                Product { m, n, k, dst_step, lhs_step, rhs_step, accumulate }.run(&mut dst, &lhs, &rhs);
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let sum: f32 = (0..k).map(|l| lhs[i + l * lhs_step] * rhs[l + j * rhs_step]).sum();
                    assert_eq!(dst[i + j * dst_step], if accumulate { 2.0 + sum } else { sum });
                }
            }
        }
    }

    #[test]
    fn a_product_of_strided_matrices_matches_the_definition() {
        let values: Vec<f32> = (0..4000).map(|i| (i % 11) as f32 - 5.0).collect();
        for (rows, columns, inner) in [(1, 1, 1), (3, 2, 5), (17, 9, 33), (40, 48, 21)] {
            let lhs = Matrix { values: &values, row_step: inner + 1, column_step: 1 };
            let rhs = Matrix { values: &values[7..], row_step: 1, column_step: inner + 3 };
            for (lhs, rhs) in [(lhs, rhs), (rhs.transposed(), lhs.transposed())] {
                let (rows, columns) =
                    if lhs.row_step == inner + 1 { (rows, columns) } else { (columns, rows) };
                let mut dst = vec![f32::NAN; rows * (columns + 2)];
                let panel = Panel::new(&mut dst, rows, columns, columns + 2);
                MatMul { inner, scale: 0.5, accumulate: false }.run(panel, lhs, rhs);
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    let at = |m: Matrix, i, j| m.values[i * m.row_step + j * m.column_step];
                    let sum: f32 = (0..inner).map(|l| at(lhs, i, l) * at(rhs, l, j)).sum();
                    assert_eq!(dst[i * (columns + 2) + j], 0.5 * sum);
                }
            }
        }
    }

    #[test]
    fn a_matrix_holds_what_is_in_its_slice() {
        let matrix = Matrix { values: &[0.0; 11], row_step: 4, column_step: 1 };
        assert!(matrix.holds(3, 3) && matrix.transposed().holds(3, 3));
        assert!(!matrix.holds(3, 4) && !matrix.holds(4, 1) && matrix.holds(0, 99));
        // Twice that is not 0.
        assert!(!Matrix { values: &[0.0], row_step: usize::MAX / 2 + 1, column_step: 1 }.holds(3, 1));
    }

    #[test]
    #[should_panic(expected = "left operand too short")]
    fn a_short_operand_panics() {
        let product = Product { m: 2, n: 2, k: 3, dst_step: 2, lhs_step: 2, rhs_step: 3, accumulate: false };
        product.run(&mut [0.0; 4], &[0.0; 6], &[0.0; 5]);
    }
}
