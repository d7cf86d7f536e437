//! Attention compared with its definition in f64, gradients with central differences.

use super::super::testing::{check_gradients, close, noise, same_bits_with_any_threads};
use super::*;

/// Each size as causal attention and without a mask.
fn shapes() -> impl Iterator<Item = AttentionShape> {
    let sizes = [[1, 1, 1, 1], [3, 5, 2, 4], [2, 64, 2, 8], [1, 65, 3, 5], [2, 150, 1, 16]];
    sizes.into_iter().flat_map(|[batch, time, heads, head]| {
        [true, false].map(|causal| AttentionShape { batch, time, heads, head, causal })
    })
}

fn reference(shape: AttentionShape, qkv: &[f64]) -> Vec<f64> {
    let (row, width) = (3 * shape.width(), shape.width());
    let mut out = vec![0.0; shape.batch * shape.time * width];
    for (b, h) in (0..shape.batch).flat_map(|b| (0..shape.heads).map(move |h| (b, h))) {
        let part = |which: usize, t: usize| {
            &qkv[(b * shape.time + t) * row + which * width + h * shape.head..][..shape.head]
        };
        for t in 0..shape.time {
            let score = |s: usize| {
                let dot: f64 = part(0, t).iter().zip(part(1, s)).map(|(q, k)| q * k).sum();
                (dot / (shape.head as f64).sqrt()).exp()
            };
            let seen = if shape.causal { t + 1 } else { shape.time };
            let weights: Vec<f64> = (0..seen).map(score).collect();
            let total: f64 = weights.iter().sum();
            for (s, weight) in weights.iter().enumerate() {
                let out = &mut out[(b * shape.time + t) * width + h * shape.head..];
                out.iter_mut().zip(part(2, s)).for_each(|(out, v)| *out += weight / total * v);
            }
        }
    }
    out
}

/// Output and gradient.
fn run(shape: AttentionShape, qkv: &[f32], dy: &[f32], parallelism: usize) -> Vec<Vec<f32>> {
    let mut out = vec![f32::NAN; dy.len()];
    let mut statistics = vec![[f32::NAN; 2]; shape.batch * shape.heads * shape.time];
    forward(shape, qkv, &mut out, &mut statistics, parallelism);
    let mut dqkv = vec![f32::NAN; qkv.len()];
    let saved = AttentionInputs { qkv, out: &out, statistics: &statistics };
    backward(shape, saved, dy, &mut dqkv, parallelism);
    vec![out, dqkv]
}

fn inputs(shape: AttentionShape) -> (Vec<f32>, Vec<f32>) {
    let len = shape.batch * shape.time * shape.width();
    (noise(3 * len, 1).iter().map(|x| 3.0 * x).collect(), noise(len, 2))
}

#[test]
fn outputs_and_gradients_match_the_definition() {
    for shape in shapes() {
        let (qkv, dy) = inputs(shape);
        let results = run(shape, &qkv, &dy, 2);
        let exact: Vec<f64> = qkv.iter().map(|&v| f64::from(v)).collect();
        close("output", &results[0], &reference(shape, &exact), 3e-6);
        check_gradients(&[&qkv], &[&results[1]], |inputs| {
            reference(shape, &inputs[0]).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        });
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    for shape in shapes() {
        let (qkv, dy) = inputs(shape);
        same_bits_with_any_threads(|parallelism| run(shape, &qkv, &dy, parallelism));
    }
}

#[test]
fn large_scores_do_not_overflow() {
    let shape = AttentionShape { batch: 1, time: 130, heads: 1, head: 2, causal: true };
    let qkv: Vec<f32> = inputs(shape).0.iter().map(|x| 100.0 * x).collect();
    let dy = vec![1.0; 260];
    assert!(run(shape, &qkv, &dy, 1).iter().flatten().all(|x| x.is_finite()));
}

/// Finite values of later tokens change nothing.
#[test]
fn a_query_does_not_see_later_tokens() {
    let shape = AttentionShape { batch: 1, time: 70, heads: 1, head: 4, causal: true };
    let (mut qkv, dy) = inputs(shape);
    let before = run(shape, &qkv, &dy, 1);
    let row = 3 * shape.width();
    for v in &mut qkv[66 * row..] {
        *v += 1.0;
    }
    assert_eq!(run(shape, &qkv, &dy, 1)[0][..66 * 4], before[0][..66 * 4]);
}
