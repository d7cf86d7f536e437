//! A linear layer (`torch.nn.Linear`) with its activation, and its gradients. The forward pass and both gradients are
//! matrix products. Bias and activation are applied to a part of the result while it is in the cache.

use super::elementwise::relu_backward;
use super::layout::scatter;
use super::math::{exp, normal};
use super::norm_loops::add;
use super::panel::{Panel, PanelPart};
use super::product::{MatMul, Matrix};
use super::tasks::{TaskBuffers, for_each, scratch, zip_blocks};
use super::wide::wide;

/// Sizes of a linear layer: `x` is `[rows, inputs]`, `w` `[outputs, inputs]`, the result `[rows, outputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearShape {
    /// Samples, or tokens of all samples.
    pub rows: usize,
    /// Elements of a row of the input.
    pub inputs: usize,
    /// Elements of a row of the result.
    pub outputs: usize,
}

/// What follows the linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    None,
    /// `max(0, x)`; NaN stays.
    Relu,
    /// With the exact error function: PyTorch's `gelu(approximate="none")`.
    Gelu,
    /// PyTorch's `gelu(approximate="tanh")`, as in GPT-2.
    GeluTanh,
}

impl Activation {
    /// Whether its derivative is computed in the forward pass; otherwise it follows from the result.
    pub fn has_slope(self) -> bool {
        matches!(self, Self::Gelu | Self::GeluTanh)
    }
}

/// With as few rows, the product is computed transposed. As many are summed in f32 for a column's sum.
pub(super) const ROWS: usize = 128;
/// Rows and columns of a task, at most, so that bias and activation are applied in the cache.
const MOST_ROWS: usize = 512;
const MOST_COLUMNS: usize = 1024;
/// Rows and columns of a task, at least, if the result has as many; columns of a single row.
const LEAST: usize = 80;
const LEAST_OF_A_ROW: usize = 320;
/// Multiplications of a task, about: below that, dividing a product costs more than a second thread brings.
const PRODUCTS: usize = 1 << 21;
/// Elements of a task of the weight's transposition, about.
const MOVED: usize = 1 << 16;

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
    /// `[outputs, inputs]`, as PyTorch's.
    pub weight: &'a [f32],
    /// One element per output.
    pub bias: Option<&'a [f32]>,
    /// Added to the product before the activation; shaped like the output.
    pub residual: Option<&'a [f32]>,
}

impl Terms<'_> {
    /// Sets a part of the result to the sum of bias and residual. False: there is neither, and it is left unchanged.
    fn begin(&self, outputs: usize, row: usize, column: usize, part: &mut Panel) -> bool {
        let columns = column..column + part.columns();
        let bias = self.bias.map(|bias| &bias[columns.clone()]);
        for r in 0..part.rows() {
            let out = part.row(r);
            if let Some(residual) = self.residual {
                out.copy_from_slice(&residual[(row + r) * outputs..][columns.clone()]);
            }
            match (bias, self.residual) {
                (Some(bias), Some(_)) => add(bias, out),
                (Some(bias), None) => out.copy_from_slice(bias),
                (None, _) => {}
            }
        }
        bias.is_some() || self.residual.is_some()
    }
}

/// `out = activation(residual + x w^T + bias)`. `slope`, empty or shaped like the output, becomes the derivative of the
/// activation if it [has one](Activation::has_slope).
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
    let LinearShape { rows, inputs, outputs } = shape;
    shape.check(x.len(), terms.weight.len(), out.len());
    assert!(terms.bias.is_none_or(|b| b.len() == outputs), "length of a linear layer's bias: {shape:?}");
    assert!(terms.residual.is_none_or(|r| r.len() == out.len()), "length of a residual: {shape:?}");
    assert!(slope.is_empty() || slope.len() == out.len(), "length of a linear layer's slope: {shape:?}");
    if out.is_empty() {
        return;
    }
    // In `x w^T` both operands have the summed dimension last, and a matrix product would have to transpose one of them,
    // element by element and for each part. So the smaller one is transposed before, in blocks.
    let small = rows <= ROWS;
    let transposed = match small {
        true => transpose(x, rows, inputs, parallelism),
        false => transpose(terms.weight, outputs, inputs, parallelism),
    };
    let slopes = match slope {
        [] => Vec::new(),
        slope => parts(slope, outputs, inputs, parallelism),
    };
    let slopes = slopes.into_iter().map(|part| Some(part.panel)).chain(std::iter::repeat_with(|| None));
    let tasks: Vec<_> = parts(out, outputs, inputs, parallelism).into_iter().zip(slopes).collect();
    for_each(parallelism, tasks.into_iter(), |(part, mut slope)| {
        let PanelPart { row, column, panel: mut out } = part;
        if small {
            let w = &terms.weight[column * inputs..][..out.columns() * inputs];
            few_rows(shape, &transposed, w, terms, column, &mut out);
        } else {
            let accumulate = terms.begin(outputs, row, column, &mut out);
            let rows = 0..out.rows();
            MatMul { inner: inputs, scale: 1.0, accumulate }.run(
                out.of_rows(rows),
                Matrix::rows(&x[row * inputs..], inputs),
                Matrix::rows(&transposed[column..], outputs),
            );
        }
        for r in 0..out.rows() {
            match (activation, &mut slope) {
                (Activation::None, _) => {}
                (Activation::Relu, _) => relu(out.row(r)),
                (Activation::Gelu, None) => gelu(out.row(r)),
                (Activation::Gelu, Some(slope)) => gelu_with_slope(out.row(r), slope.row(r)),
                (Activation::GeluTanh, None) => gelu_tanh(out.row(r)),
                (Activation::GeluTanh, Some(slope)) => gelu_tanh_with_slope(out.row(r), slope.row(r)),
            }
        }
    });
}

/// The parts of a product that are a task each; each element of the product is a sum over `inner`. Each task packs its
/// operands again, so there are no more than keep `parallelism` threads busy.
///
/// `gemm` sums the elements of small and of narrow products in another order: up to 64 x 64, up to 256 elements of one row, one
/// column. So that the bits do not depend on the number of threads, a part is larger than that, or all that the product has.
fn parts(product: &mut [f32], columns: usize, inner: usize, parallelism: usize) -> Vec<PanelPart<'_>> {
    let rows = product.len() / columns;
    if inner == 0 {
        return Panel::whole(product, columns).divide(1, 1);
    }
    let threads = if columns < 8 { 1 } else { parallelism.max(1) };
    let tasks = (product.len() * inner / PRODUCTS).clamp(1, if threads == 1 { 1 } else { 4 * threads });
    // As many for each thread, where that is possible.
    let count = |wanted: usize, len: usize, least: usize, most: usize| {
        let fewest = len.div_ceil(most);
        let count = wanted.clamp(fewest, fewest.max(len / least));
        if count > threads { fewest.max(count - count % threads) } else { count }
    };
    let down = count(tasks, rows, LEAST, MOST_ROWS);
    let across = count(tasks / down, columns, if rows == 1 { LEAST_OF_A_ROW } else { LEAST }, MOST_COLUMNS);
    Panel::whole(product, columns).divide(down, across)
}

/// The sum before the activation, for few rows: the product is computed transposed, so that the weight need not be.
fn few_rows(shape: LinearShape, x_t: &[f32], w: &[f32], terms: Terms, column: usize, out: &mut Panel) {
    let LinearShape { rows, inputs, outputs } = shape;
    let columns = out.columns();
    let (mut product_t, mut product) = (scratch(rows * columns), scratch(rows * columns));
    MatMul { inner: inputs, scale: 1.0, accumulate: false }.run(
        Panel::whole(&mut product_t, rows),
        Matrix::rows(w, inputs),
        Matrix::rows(x_t, rows),
    );
    let offsets: Vec<usize> = (0..rows).map(|r| r * columns).collect();
    scatter(&product_t, rows, columns, &offsets, &mut product);
    let accumulate = terms.begin(outputs, 0, column, out);
    for (r, product) in product.chunks_exact(columns).enumerate() {
        match accumulate {
            true => add(product, out.row(r)),
            false => out.row(r).copy_from_slice(product),
        }
    }
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(matrix: &[f32], rows: usize, columns: usize, parallelism: usize) -> TaskBuffers {
    let mut transposed = scratch(matrix.len());
    let part = (MOVED / rows).max(16);
    let offsets: Vec<usize> = (0..part.min(columns)).map(|i| i * rows).collect();
    for_each(parallelism, transposed.chunks_mut(part * rows).enumerate(), |(task, to)| {
        scatter(&matrix[task * part..], columns, rows, &offsets[..to.len() / rows], to);
    });
    transposed
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
    match activation {
        Activation::None => dz.copy_from_slice(dy),
        Activation::Relu => relu_backward(saved, dy, dz, parallelism),
        Activation::Gelu | Activation::GeluTanh => zip_blocks(parallelism, saved, dy, dz, multiply),
    }
}

/// Gradient of the input: `dx = dz w`, overwritten.
pub fn backward_input(shape: LinearShape, w: &[f32], dz: &[f32], dx: &mut [f32], parallelism: usize) {
    let LinearShape { inputs, outputs, .. } = shape;
    shape.check(dx.len(), w.len(), dz.len());
    if dx.is_empty() {
        return;
    }
    for_each(
        parallelism,
        parts(dx, inputs, outputs, parallelism).into_iter(),
        |PanelPart { row, column, panel }| {
            MatMul { inner: outputs, scale: 1.0, accumulate: false }.run(
                panel,
                Matrix::rows(&dz[row * outputs..], outputs),
                Matrix::rows(&w[column..], inputs),
            );
        },
    );
}

/// Gradient of the weight: `dw = dz^T x`, overwritten.
pub fn backward_weight(shape: LinearShape, x: &[f32], dz: &[f32], dw: &mut [f32], parallelism: usize) {
    weight_gradient(shape, x, dz, dw, false, parallelism);
}

/// The same, added to `dw` if `accumulate`.
pub(super) fn weight_gradient(
    shape: LinearShape,
    x: &[f32],
    dz: &[f32],
    dw: &mut [f32],
    accumulate: bool,
    parallelism: usize,
) {
    let LinearShape { rows, inputs, outputs } = shape;
    shape.check(x.len(), dw.len(), dz.len());
    if rows == 0 && !accumulate {
        dw.fill(0.0);
    }
    if dw.is_empty() || rows == 0 {
        return;
    }
    for_each(
        parallelism,
        parts(dw, inputs, rows, parallelism).into_iter(),
        |PanelPart { row, column, panel }| {
            MatMul { inner: rows, scale: 1.0, accumulate }.run(
                panel,
                Matrix::rows(&dz[row..], outputs).transposed(),
                Matrix::rows(&x[column..], inputs),
            );
        },
    );
}

/// Gradient of the bias: `db[o]` is the sum of `dz[r, o]` over the rows, in f32 for `ROWS` rows, in f64 from there.
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
    const SUMS: usize = 256;
    for_each(parallelism, sums.chunks_mut(SUMS).enumerate(), |(task, sums)| {
        let mut totals = [0.0f64; SUMS];
        for block in partial.chunks_exact(width) {
            let block = &block[task * SUMS..][..sums.len()];
            totals.iter_mut().zip(block).for_each(|(total, &x)| *total += f64::from(x));
        }
        sums.iter_mut().zip(totals).for_each(|(sum, total)| *sum = total as f32);
    });
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

wide! {
    fn gelu(values: &mut [f32]) {
        for value in values {
            *value *= normal(*value).0;
        }
    }
}

wide! {
    /// `values = gelu(values)`, `slope` its derivative: Phi(z) + z phi(z).
    fn gelu_with_slope(values: &mut [f32], slope: &mut [f32]) {
        for (value, slope) in values.iter_mut().zip(slope) {
            let z = *value;
            let (below, density) = normal(z);
            *slope = below + z * density;
            *value = z * below;
        }
    }
}

/// sqrt(8 / pi), and the factor of the cube.
const GELU_TANH: [f32; 2] = [1.595_769, 0.044_715];

/// `(1 + tanh(u)) / 2` for `u = sqrt(2 / pi) (z + 0.044715 z^3)`.
#[inline(always)]
fn share_tanh(z: f32) -> f32 {
    let [scale, cubic] = GELU_TANH;
    1.0 / (1.0 + exp(-scale * z * (1.0 + cubic * z * z)))
}

wide! {
    fn gelu_tanh(values: &mut [f32]) {
        for value in values {
            *value *= share_tanh(*value);
        }
    }
}

wide! {
    /// `values = gelu_tanh(values)`, `slope` its derivative.
    fn gelu_tanh_with_slope(values: &mut [f32], slope: &mut [f32]) {
        let [scale, cubic] = GELU_TANH;
        for (value, slope) in values.iter_mut().zip(slope) {
            let z = *value;
            let share = share_tanh(z);
            *slope = share + z * share * (1.0 - share) * (scale * (1.0 + 3.0 * cubic * z * z));
            *value = z * share;
        }
    }
}

#[cfg(test)]
#[path = "linear_tests.rs"]
mod tests;
