//! A linear layer (`torch.nn.Linear`) with its activation, and its gradients. The forward pass and both gradients are
//! matrix products; only the forward pass transposes the weight. Bias and activation are applied to a block of rows
//! while it is in the cache.

use super::layout::scatter;
use super::math::{erf, exp};
use super::norm_loops::add;
use super::product::{MatMul, Matrix};
use super::tasks::{for_each, optional_chunks, scratch};
use super::wide::wide;

/// Sizes of a linear layer: `x` is `[rows, inputs]`, `w` `[outputs, inputs]`, the result `[rows, outputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    pub rows: usize,
    pub inputs: usize,
    pub outputs: usize,
}

/// What follows the linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    None,
    Relu,
    /// With the exact error function: PyTorch's `gelu(approximate="none")`.
    Gelu,
}

/// Rows of a task of the forward pass and of the input's gradient.
const ROWS: usize = 128;
/// Elements of a task of the weight's transposition, about.
const MOVED: usize = 1 << 16;
/// Multiplications of a task of the weight's gradient, about: each task reads all rows.
const PRODUCTS: usize = 1 << 23;

impl LinearShape {
    fn check(&self, x: usize, w: usize, y: usize) {
        assert_eq!(x, self.rows * self.inputs, "length of a linear layer's input: {self:?}");
        assert_eq!(w, self.outputs * self.inputs, "length of a linear layer's weight: {self:?}");
        assert_eq!(y, self.rows * self.outputs, "length of a linear layer's output: {self:?}");
    }
}

/// What the forward pass computes from, besides the input.
#[derive(Clone, Copy)]
pub struct Terms<'a> {
    pub weight: &'a [f32],
    pub bias: Option<&'a [f32]>,
    /// Added to the product before the activation; shaped like the output.
    pub residual: Option<&'a [f32]>,
}

/// `out = activation(residual + x w^T + bias)`. `slope`, empty or shaped like the output, becomes the derivative of the
/// activation if that is [`Activation::Gelu`].
///
/// Panics if a slice's length does not match `shape`; so do the other functions here.
pub fn forward(
    shape: LinearShape,
    x: &[f32],
    terms: Terms,
    activation: Activation,
    out: &mut [f32],
    slope: &mut [f32],
    parallelism: usize,
) {
    let LinearShape { inputs, outputs, .. } = shape;
    shape.check(x.len(), terms.weight.len(), out.len());
    assert!(terms.bias.is_none_or(|b| b.len() == outputs), "length of a linear layer's bias: {shape:?}");
    assert!(terms.residual.is_none_or(|r| r.len() == out.len()), "length of a residual: {shape:?}");
    assert!(slope.is_empty() || slope.len() == out.len(), "length of a linear layer's slope: {shape:?}");
    if out.is_empty() {
        return;
    }
    let block = ROWS * outputs;
    // Transposed once, rather than for each block of rows.
    let mut weight = scratch(inputs * outputs);
    transpose(terms.weight, inputs, outputs, &mut weight, parallelism);
    let tasks: Vec<_> = out.chunks_mut(block).zip(optional_chunks(slope, block)).enumerate().collect();
    for_each(parallelism, tasks.into_iter(), |(task, (out, slope))| {
        let rows = out.len() / outputs;
        if let Some(residual) = terms.residual {
            out.copy_from_slice(&residual[task * block..][..out.len()]);
        }
        if let Some(bias) = terms.bias {
            for row in out.chunks_exact_mut(outputs) {
                match terms.residual {
                    Some(_) => add(bias, row),
                    None => row.copy_from_slice(bias),
                }
            }
        }
        let accumulate = terms.bias.is_some() || terms.residual.is_some();
        MatMul { rows, columns: outputs, inner: inputs, dst_step: outputs, scale: 1.0, accumulate }.run(
            out,
            Matrix::rows(&x[task * ROWS * inputs..], inputs),
            Matrix::rows(&weight, outputs),
        );
        match activation {
            Activation::None => {}
            Activation::Relu => relu(out),
            Activation::Gelu if slope.is_empty() => gelu(out),
            Activation::Gelu => gelu_with_slope(out, slope),
        }
    });
}

/// `w` `[outputs, inputs]` to `[inputs, outputs]`.
fn transpose(w: &[f32], inputs: usize, outputs: usize, transposed: &mut [f32], parallelism: usize) {
    let part = (MOVED / outputs).max(16);
    let offsets: Vec<usize> = (0..part.min(inputs)).map(|i| i * outputs).collect();
    for_each(parallelism, transposed.chunks_mut(part * outputs).enumerate(), |(task, to)| {
        scatter(&w[task * part..], inputs, outputs, &offsets[..to.len() / outputs], to);
    });
}

/// Gradient of the sum that the activation is applied to: `dy` times the activation's derivative, which is taken from
/// `out` (ReLU) or `slope` (GELU) of [`forward`].
pub fn backward_activation(
    activation: Activation,
    saved: &[f32],
    dy: &[f32],
    dz: &mut [f32],
    parallelism: usize,
) {
    assert_eq!((saved.len(), dy.len()), (dz.len(), dz.len()), "lengths of an activation's gradients");
    let block = 1 << 14;
    let tasks = dz.chunks_mut(block).zip(dy.chunks(block)).zip(saved.chunks(block));
    for_each(parallelism, tasks, |((dz, dy), saved)| match activation {
        Activation::None => dz.copy_from_slice(dy),
        Activation::Relu => super::elementwise::relu_backward(saved, dy, dz),
        Activation::Gelu => multiply(saved, dy, dz),
    });
}

/// Gradient of the input: `dx = dz w`, overwritten.
pub fn backward_input(shape: LinearShape, w: &[f32], dz: &[f32], dx: &mut [f32], parallelism: usize) {
    let LinearShape { inputs, outputs, .. } = shape;
    shape.check(dx.len(), w.len(), dz.len());
    if dx.is_empty() {
        return;
    }
    for_each(parallelism, dx.chunks_mut(ROWS * inputs).enumerate(), |(task, dx)| {
        let rows = dx.len() / inputs;
        let product =
            MatMul { rows, columns: inputs, inner: outputs, dst_step: inputs, scale: 1.0, accumulate: false };
        product.run(dx, Matrix::rows(&dz[task * ROWS * outputs..], outputs), Matrix::rows(w, inputs));
    });
}

/// Gradient of the weight: `dw = dz^T x`, overwritten.
pub fn backward_weight(shape: LinearShape, x: &[f32], dz: &[f32], dw: &mut [f32], parallelism: usize) {
    let LinearShape { rows, inputs, outputs } = shape;
    shape.check(x.len(), dw.len(), dz.len());
    if dw.is_empty() {
        return;
    }
    // Blocks of rows of `dw`, so many that each is worth a task.
    let tasks = (rows * inputs * outputs / PRODUCTS).clamp(1, 64);
    let part = outputs.div_ceil(tasks).next_multiple_of(16);
    for_each(parallelism, dw.chunks_mut(part * inputs).enumerate(), |(task, dw)| {
        let product = MatMul {
            rows: dw.len() / inputs,
            columns: inputs,
            inner: rows,
            dst_step: inputs,
            scale: 1.0,
            accumulate: false,
        };
        let dz = dz.get(task * part..).unwrap_or_default();
        product.run(dw, Matrix::rows(dz, outputs).transposed(), Matrix::rows(x, inputs));
    });
}

/// Gradient of the bias: `db[o]` is the sum of `dz[r, o]` over the rows, in f32 for [`ROWS`] rows, in f64 from there.
pub fn backward_bias(shape: LinearShape, dz: &[f32], db: &mut [f32], parallelism: usize) {
    assert_eq!(dz.len(), shape.rows * shape.outputs, "length of a linear layer's output: {shape:?}");
    assert_eq!(db.len(), shape.outputs, "length of a linear layer's bias: {shape:?}");
    column_sums(dz, db, parallelism);
}

/// `sums[c]` is the sum over the rows of `values` `[rows, sums.len()]`, in f32 for [`ROWS`] rows, in f64 from there.
pub(super) fn column_sums(values: &[f32], sums: &mut [f32], parallelism: usize) {
    let width = sums.len();
    if width == 0 {
        return;
    }
    let blocks = values.len().div_ceil(ROWS * width);
    let mut partial = scratch(blocks * width);
    let tasks = partial.chunks_exact_mut(width).zip(values.chunks(ROWS * width));
    for_each(parallelism, tasks, |(sum, rows)| {
        sum.fill(0.0);
        rows.chunks_exact(width).for_each(|row| add(row, sum));
    });
    for (column, sum) in sums.iter_mut().enumerate() {
        *sum = partial.chunks_exact(width).map(|p| f64::from(p[column])).sum::<f64>() as f32;
    }
}

wide! {
    fn multiply(a: &[f32], b: &[f32], out: &mut [f32]) {
        for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
            *out = a * b;
        }
    }
}

wide! {
    fn relu(values: &mut [f32]) {
        for value in values {
            *value = if *value <= 0.0 { 0.0 } else { *value };
        }
    }
}

/// The standard normal distribution function.
#[inline(always)]
fn phi(z: f32) -> f32 {
    0.5 + 0.5 * erf(z * std::f32::consts::FRAC_1_SQRT_2)
}

wide! {
    fn gelu(values: &mut [f32]) {
        for value in values {
            *value *= phi(*value);
        }
    }
}

/// 1 / sqrt(2 pi)
const DENSITY_AT_0: f32 = 0.398_942_3;

wide! {
    /// `values = gelu(values)`, `slope` its derivative: Phi(z) + z phi(z).
    fn gelu_with_slope(values: &mut [f32], slope: &mut [f32]) {
        for (value, slope) in values.iter_mut().zip(slope) {
            let z = *value;
            let below = phi(z);
            *slope = below + z * (DENSITY_AT_0 * exp(-0.5 * z * z));
            *value = z * below;
        }
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
