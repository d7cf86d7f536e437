//! Layer normalisation of rows, as `torch.nn.LayerNorm` over the last dimension: by each row's mean and biased variance.
//! Sums over a row are computed in 16 lanes, then added in a fixed order.

use super::lanes::sum;
use super::linear::column_sums;
use super::tasks::{BLOCK, for_each, scratch};
use super::wide::wide;

/// Rows of a task, for rows of `width` elements.
pub(super) fn rows_of_a_task(width: usize) -> usize {
    (BLOCK / width).max(1)
}

/// `out = (x - mean) * inv_std * weight + bias` for each row of `weight.len()` elements. `statistics` becomes each row's
/// mean and inverse standard deviation.
///
/// Panics if the lengths do not match; so does [`backward`].
pub fn forward(
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    eps: f32,
    out: &mut [f32],
    statistics: &mut [[f32; 2]],
    parallelism: usize,
) {
    let width = weight.len();
    assert_eq!((bias.len(), x.len()), (width, out.len()), "lengths of a layer norm");
    if out.is_empty() {
        return;
    }
    let rows = out.len() / width;
    assert_eq!((rows * width, statistics.len()), (out.len(), rows), "lengths of a layer norm");
    let block = rows_of_a_task(width);
    let tasks = out.chunks_mut(block * width).zip(x.chunks(block * width)).zip(statistics.chunks_mut(block));
    for_each(parallelism, tasks, |((out, x), statistics)| normalise(x, weight, bias, eps, out, statistics));
}

/// Inputs of the backward pass of [`forward`].
#[derive(Clone, Copy)]
pub struct LayerNormInputs<'a> {
    /// The forward pass's input.
    pub x: &'a [f32],
    /// As in the forward pass.
    pub weight: &'a [f32],
    /// Mean, and 1 / standard deviation, of each row.
    pub statistics: &'a [[f32; 2]],
}

/// Gradients, all overwritten: `dx` of the input, `dw` and `db` of weight and bias. With `xhat = (x - mean) * inv_std` and
/// `g = dy * weight`: `dx = inv_std * (g - mean(g) - xhat * mean(g * xhat))`.
pub fn backward(
    saved: LayerNormInputs,
    dy: &[f32],
    dx: &mut [f32],
    dw: &mut [f32],
    db: &mut [f32],
    parallelism: usize,
) {
    let LayerNormInputs { x, weight, statistics } = saved;
    let width = weight.len();
    assert_eq!((dw.len(), db.len()), (width, width), "lengths of a layer norm's gradients");
    assert_eq!((x.len(), dy.len()), (dx.len(), dx.len()), "lengths of a layer norm's gradients");
    assert_eq!(statistics.len() * width, x.len(), "lengths of a layer norm's gradients");
    if dx.is_empty() {
        dw.fill(0.0);
        db.fill(0.0);
        return;
    }
    // Not so few that the sums of all tasks would be more than the gradients.
    let block = rows_of_a_task(width).max(32);
    let tasks = dx.len().div_ceil(block * width);
    // Per task, the sums for `dw`, then those for `db`.
    let mut sums = scratch(2 * width * tasks);
    let parts = dx
        .chunks_mut(block * width)
        .zip(sums.chunks_exact_mut(2 * width))
        .zip(x.chunks(block * width).zip(dy.chunks(block * width)).zip(statistics.chunks(block)));
    for_each(parallelism, parts, |((dx, sums), ((x, dy), statistics))| {
        let (dw, db) = sums.split_at_mut(width);
        dw.fill(0.0);
        db.fill(0.0);
        gradients(x, dy, weight, statistics, dx, dw, db);
    });
    let mut totals = scratch(2 * width);
    column_sums(&sums, &mut totals, parallelism);
    dw.copy_from_slice(&totals[..width]);
    db.copy_from_slice(&totals[width..]);
}

wide! {
    fn normalise(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32], statistics: &mut [[f32; 2]]) {
        let width = weight.len();
        let bias = &bias[..width];
        let rows = x.chunks_exact(width).zip(out.chunks_exact_mut(width)).zip(statistics);
        for ((x, out), statistics) in rows {
            let mean = sum([x], |[x]| x) / width as f32;
            let variance = sum([x], |[x]| (x - mean) * (x - mean)) / width as f32;
            let inv_std = 1.0 / (variance + eps).sqrt();
            for i in 0..width {
                out[i] = (x[i] - mean) * inv_std * weight[i] + bias[i];
            }
            *statistics = [mean, inv_std];
        }
    }
}

wide! {
    fn gradients(
        x: &[f32], dy: &[f32], weight: &[f32], statistics: &[[f32; 2]], dx: &mut [f32], dw: &mut [f32], db: &mut [f32],
    ) {
        let width = weight.len();
        let (dw, db) = (&mut dw[..width], &mut db[..width]);
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)).zip(statistics);
        for (((x, dy), dx), &[mean, inv_std]) in rows {
            let g_mean = sum([dy, weight], |[dy, weight]| dy * weight) / width as f32;
            let slope = sum([dy, weight, x], |[dy, weight, x]| dy * weight * ((x - mean) * inv_std)) / width as f32;
            for i in 0..width {
                let xhat = (x[i] - mean) * inv_std;
                dx[i] = inv_std * (dy[i] * weight[i] - g_mean - xhat * slope);
                dw[i] += dy[i] * xhat;
                db[i] += dy[i];
            }
        }
    }
}

#[cfg(test)]
#[path = "layer_norm_tests.rs"]
mod tests;
