//! ReLU, and the addition with ReLU at the end of a residual block. NaN is propagated, as in PyTorch.

use super::tasks::zip_blocks;
use super::wide::wide;

/// `out = max(a + b, 0)`. [`relu_backward`] computes the gradient of both `a` and `b`.
pub fn add_relu(a: &[f32], b: &[f32], out: &mut [f32], parallelism: usize) {
    zip_blocks(parallelism, a, b, out, add_relu_loop);
}

/// `dx = dy` where the ReLU's result `out` is above 0 (or NaN), else 0.
pub fn relu_backward(out: &[f32], dy: &[f32], dx: &mut [f32], parallelism: usize) {
    zip_blocks(parallelism, out, dy, dx, relu_backward_loop);
}

wide! {
    fn add_relu_loop(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            let sum = a + b;
            *out = if sum <= 0.0 { 0.0 } else { sum };
        }
    }
}

wide! {
    fn relu_backward_loop(out: &[f32], dy: &[f32], dx: &mut [f32]) {
        for ((dx, &dy), &out) in dx.iter_mut().zip(dy).zip(out) {
            *dx = if out <= 0.0 { 0.0 } else { dy };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tasks::BLOCK;
    use super::*;

    const X: [f32; 6] = [-1.0, 0.0, -0.0, 2.5, f32::NAN, f32::INFINITY];

    fn same(got: &[f32], expected: &[f32]) {
        let bits = |v: &[f32]| v.iter().map(|v| if v.is_nan() { 1 } else { v.to_bits() }).collect::<Vec<_>>();
        assert_eq!(bits(got), bits(expected), "{got:?}");
    }

    #[test]
    fn relu_keeps_what_is_positive_or_nan() {
        let mut out = [7.0; 6];
        add_relu(&X, &[0.0; 6], &mut out, 1);
        same(&out, &[0.0, 0.0, 0.0, 2.5, f32::NAN, f32::INFINITY]);
        let mut dx = [7.0; 6];
        relu_backward(&out, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut dx, 1);
        same(&dx, &[0.0, 0.0, 0.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn add_relu_adds_first() {
        const LEN: usize = 2 * BLOCK + 5;
        let a: Vec<f32> = (0..LEN).map(|i| i as f32 - 20.0).collect();
        let expected: Vec<f32> = (0..LEN).map(|i| (i as f32 - 15.0).max(0.0)).collect();
        for parallelism in [1, 2] {
            let mut out = [7.0; LEN];
            add_relu(&a, &[5.0; LEN], &mut out, parallelism);
            same(&out, &expected);
            let mut dx = [7.0; LEN];
            relu_backward(&out, &a, &mut dx, parallelism);
            same(
                &dx,
                &a.iter().zip(&out).map(|(&a, &out)| if out > 0.0 { a } else { 0.0 }).collect::<Vec<_>>(),
            );
        }
    }
}
