//! The matrix product of the convolutions, as a checked call of the `gemm` crate.

#![allow(unsafe_code)]

/// `dst[i + j*dst_step] (+)= sum over k of lhs[i + k*lhs_step] * rhs[k + j*rhs_step]` for `i < m`, `j < n`. The left
/// operand and the result are contiguous in `i`, the right operand in `k`. With `accumulate` the sum is added to `dst`,
/// else `dst` is overwritten (its old content never matters). Runs on the calling thread only.
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
        if m == 0 || n == 0 {
            return;
        }
        assert!(dst_step >= m || n == 1, "columns of the result overlap");
        assert!((n - 1) * dst_step + m <= dst.len(), "result too short");
        assert!(k == 0 || (k - 1) * lhs_step + m <= lhs.len(), "left operand too short");
        assert!(k == 0 || (n - 1) * rhs_step + k <= rhs.len(), "right operand too short");
        // SAFETY: `gemm` accesses dst[i + j*dst_step], lhs[i + l*lhs_step] and rhs[l + j*rhs_step] for i < m, j < n, l
        // < k; the assertions above keep all of them within the slices. `dst` is borrowed mutably, so it overlaps
        // neither operand, and its columns do not overlap each other. Slices are shorter than isize::MAX bytes, so the
        // steps fit isize.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                dst.as_mut_ptr(),
                dst_step as isize,
                1,
                accumulate,
                lhs.as_ptr(),
                lhs_step as isize,
                1,
                rhs.as_ptr(),
                rhs_step as isize,
                1,
                1.0,
                1.0,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
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
    #[should_panic(expected = "right operand too short")]
    fn a_short_operand_panics() {
        let product = Product { m: 2, n: 2, k: 3, dst_step: 2, lhs_step: 2, rhs_step: 3, accumulate: false };
        product.run(&mut [0.0; 4], &[0.0; 6], &[0.0; 5]);
    }
}
