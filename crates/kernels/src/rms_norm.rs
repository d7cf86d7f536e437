//! Normalisation of rows by their root mean square (Zhang and Sennrich, 2019, arXiv:1910.07467), as `torch.nn.RMSNorm` over the
//! last dimension. Sums over a row are computed in 16 lanes, then added in a fixed order.

use super::lanes::sum;
use super::layer_norm::rows_of_a_task;
use super::linear::column_sums;
use super::tasks::{for_each, scratch};
use super::wide::wide;

/// `out = x * scale * weight` for each row of `weight.len()` elements, with `scale = 1 / sqrt(mean(x^2) + eps)`, which becomes the
/// row's element of `scales`.
///
/// Panics if the lengths do not match; so does [`backward`].
pub fn forward(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32], scales: &mut [f32], parallelism: usize) {
    let width = weight.len();
    assert_eq!((x.len(), scales.len() * width), (out.len(), out.len()), "lengths of an RMS norm");
    if out.is_empty() {
        return;
    }
    let block = rows_of_a_task(width);
    let tasks = out.chunks_mut(block * width).zip(x.chunks(block * width)).zip(scales.chunks_mut(block));
    for_each(parallelism, tasks, |((out, x), scales)| normalise(x, weight, eps, out, scales));
}

/// Inputs of the backward pass of [`forward`].
#[derive(Clone, Copy)]
pub struct RmsNormInputs<'a> {
    /// The forward pass's input.
    pub x: &'a [f32],
    /// As in the forward pass.
    pub weight: &'a [f32],
    /// What it wrote of each row.
    pub scales: &'a [f32],
}

/// Gradients, overwritten: `dx` of the input, `dw` of the weight. With `xhat = x * scale` and `g = dy * weight`:
/// `dx = scale * (g - xhat * mean(g * xhat))`.
pub fn backward(saved: RmsNormInputs, dy: &[f32], dx: &mut [f32], dw: &mut [f32], parallelism: usize) {
    let RmsNormInputs { x, weight, scales } = saved;
    let width = weight.len();
    assert_eq!(dw.len(), width, "lengths of an RMS norm's gradients");
    assert_eq!((x.len(), dy.len()), (dx.len(), dx.len()), "lengths of an RMS norm's gradients");
    assert_eq!(scales.len() * width, x.len(), "lengths of an RMS norm's gradients");
    if dx.is_empty() {
        dw.fill(0.0);
        return;
    }
    // Not so few that the sums of all tasks would be more than the gradients.
    let block = rows_of_a_task(width).max(32);
    let mut sums = scratch(width * dx.len().div_ceil(block * width));
    let parts = dx
        .chunks_mut(block * width)
        .zip(sums.chunks_exact_mut(width))
        .zip(x.chunks(block * width).zip(dy.chunks(block * width)).zip(scales.chunks(block)));
    for_each(parallelism, parts, |((dx, dw), ((x, dy), scales))| {
        dw.fill(0.0);
        gradients(x, dy, weight, scales, dx, dw);
    });
    column_sums(&sums, dw, parallelism);
}

wide! {
    fn normalise(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32], scales: &mut [f32]) {
        let width = weight.len();
        for ((x, out), scale) in x.chunks_exact(width).zip(out.chunks_exact_mut(width)).zip(scales) {
            *scale = 1.0 / (sum([x], |[x]| x * x) / width as f32 + eps).sqrt();
            for i in 0..width {
                out[i] = x[i] * *scale * weight[i];
            }
        }
    }
}

wide! {
    fn gradients(x: &[f32], dy: &[f32], weight: &[f32], scales: &[f32], dx: &mut [f32], dw: &mut [f32]) {
        let width = weight.len();
        let dw = &mut dw[..width];
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width)).zip(dx.chunks_exact_mut(width)).zip(scales);
        for (((x, dy), dx), &scale) in rows {
            let slope = sum([dy, weight, x], |[dy, weight, x]| dy * weight * (x * scale)) / width as f32;
            for i in 0..width {
                let xhat = x[i] * scale;
                dx[i] = scale * (dy[i] * weight[i] - xhat * slope);
                dw[i] += dy[i] * xhat;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check_gradients, close, exact, noise, same_bits_with_any_threads};
    use super::*;

    const EPS: f32 = 1e-5;

    /// `inputs`: x, weight.
    fn reference(inputs: &[Vec<f64>]) -> Vec<f64> {
        let width = inputs[1].len();
        let row = |x: &[f64]| {
            let squares = x.iter().map(|x| x * x).sum::<f64>() / width as f64;
            let scale = 1.0 / (squares + f64::from(EPS)).sqrt();
            x.iter().zip(&inputs[1]).map(|(x, weight)| x * scale * weight).collect::<Vec<_>>()
        };
        inputs[0].chunks_exact(width).flat_map(row).collect()
    }

    /// Output, then the gradients of x and weight.
    fn run(x: &[f32], weight: &[f32], dy: &[f32], parallelism: usize) -> Vec<Vec<f32>> {
        let nan = |len| vec![f32::NAN; len];
        let width = weight.len();
        let (mut out, mut scales) = (nan(x.len()), nan(x.len() / width));
        forward(x, weight, EPS, &mut out, &mut scales, parallelism);
        let (mut dx, mut dw) = (nan(x.len()), nan(width));
        backward(RmsNormInputs { x, weight, scales: &scales }, dy, &mut dx, &mut dw, parallelism);
        vec![out, dx, dw]
    }

    fn inputs(rows: usize, width: usize) -> [Vec<f32>; 3] {
        [noise(rows * width, 1), noise(width, 2), noise(rows * width, 3)]
    }

    #[test]
    fn outputs_and_gradients_match_the_definition() {
        for (rows, width) in [(3, 17), (40, 128), (700, 48)] {
            let [x, weight, dy] = inputs(rows, width);
            let results = run(&x, &weight, &dy, 2);
            close("output", &results[0], &reference(&[exact(&x), exact(&weight)]), 3e-6);
            check_gradients(&[&x, &weight], &[&results[1], &results[2]], |inputs| {
                reference(inputs).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
            });
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        for (rows, width) in [(1, 5), (700, 48), (1500, 128)] {
            let [x, weight, dy] = inputs(rows, width);
            same_bits_with_any_threads(|parallelism| run(&x, &weight, &dy, parallelism));
        }
    }

    #[test]
    fn without_rows_the_weight_has_no_gradient() {
        assert_eq!(run(&[], &[1.0; 3], &[], 2)[1..], [vec![], vec![0.0; 3]]);
    }
}
