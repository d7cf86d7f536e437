//! Softmax and cross-entropy of rows of logits in one pass, with the gradient: PyTorch's `cross_entropy` with mean
//! reduction and label smoothing.

use super::lanes::{largest, sum};
use super::math::exp;
use super::tasks::{BLOCK, for_each, optional_chunks};
use super::wide::wide;

/// Returns the mean over the rows of `-(1 - smoothing) * log p[target] - smoothing * mean(log p)`, where `p` is the
/// softmax of a row of `classes` logits. `gradient`, empty or shaped like `logits`, becomes the result's gradient.
///
/// Panics if the lengths do not match, or a target is not below `classes`.
pub fn forward(
    classes: usize,
    logits: &[f32],
    targets: &[u32],
    smoothing: f64,
    gradient: &mut [f32],
    parallelism: usize,
) -> f32 {
    let [sum, _] = sums(classes, logits, targets, targets.len(), smoothing, gradient, parallelism);
    (sum / targets.len() as f64) as f32
}

/// The sums over the rows of the losses with and without smoothing. `gradient` becomes that of the first one, divided by `rows`.
pub(super) fn sums(
    classes: usize,
    logits: &[f32],
    targets: &[u32],
    rows: usize,
    smoothing: f64,
    gradient: &mut [f32],
    parallelism: usize,
) -> [f64; 2] {
    assert_eq!(logits.len(), targets.len() * classes, "lengths of a cross-entropy");
    assert!(gradient.is_empty() || gradient.len() == logits.len(), "lengths of a cross-entropy");
    assert!(targets.iter().all(|&t| (t as usize) < classes), "a target is not one of the {classes} classes");
    let of_task = (BLOCK / classes.max(1)).max(1);
    let mut losses = vec![[0.0f64; 2]; targets.len().div_ceil(of_task)];
    let tasks: Vec<_> = losses
        .iter_mut()
        .zip(logits.chunks(of_task * classes))
        .zip(targets.chunks(of_task))
        .zip(optional_chunks(gradient, of_task * classes))
        .map(|(((loss, logits), targets), gradient)| (loss, logits, targets, gradient))
        .collect();
    let weights = Weights {
        target: (1.0 - smoothing) as f32,
        each: (smoothing / classes as f64) as f32,
        of_row: (1.0 / rows as f64) as f32,
    };
    for_each(parallelism, tasks.into_iter(), |(loss, logits, targets, gradient)| {
        rows_of(logits, targets, weights, gradient, loss);
    });
    [0, 1].map(|which| losses.iter().map(|loss| loss[which]).sum())
}

#[derive(Clone, Copy)]
struct Weights {
    /// Weight of the target's log probability.
    target: f32,
    /// Additional weight of each class's log probability.
    each: f32,
    /// Weight of a row in the mean.
    of_row: f32,
}

wide! {
    fn rows_of(logits: &[f32], targets: &[u32], weights: Weights, gradient: &mut [f32], loss: &mut [f64; 2]) {
        let classes = logits.len() / targets.len();
        for (row, (x, &target)) in logits.chunks_exact(classes).zip(targets).enumerate() {
            let maximum = largest(x, f32::NEG_INFINITY);
            let gradient = gradient.get_mut(row * classes..(row + 1) * classes).unwrap_or_default();
            // The gradient holds the exponentials until their sum is known.
            for (gradient, &x) in gradient.iter_mut().zip(x) {
                *gradient = exp(x - maximum);
            }
            let total = match gradient.is_empty() {
                true => sum([x], |[x]| exp(x - maximum)),
                false => sum([gradient], |[exponential]| exponential),
            };
            let log_total = f64::from(maximum) + f64::from(total).ln();
            let plain = log_total - f64::from(x[target as usize]);
            let mut nll = f64::from(weights.target) * plain;
            if weights.each > 0.0 {
                // Relative to the maximum, so that large logits do not cancel.
                let others = f64::from(total).ln() * classes as f64 - f64::from(sum([x], |[x]| x - maximum));
                nll += f64::from(weights.each) * others;
            }
            loss[0] += nll;
            loss[1] += plain;
            if gradient.is_empty() {
                continue;
            }
            let factor = weights.of_row / total;
            let each = weights.of_row * weights.each;
            for gradient in &mut *gradient {
                *gradient = *gradient * factor - each;
            }
            gradient[target as usize] -= weights.of_row * weights.target;
        }
    }
}

#[cfg(test)]
#[path = "cross_entropy_tests.rs"]
mod tests;
