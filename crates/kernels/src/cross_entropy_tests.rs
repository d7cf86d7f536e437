//! Cross-entropy compared with its definition in f64, the gradient with central differences.

use super::super::testing::{check_gradients, noise, same_bits_with_any_threads};
use super::*;

fn reference(classes: usize, logits: &[f64], targets: &[u32], smoothing: f64) -> f64 {
    let row = |(x, &target): (&[f64], &u32)| {
        let total = x.iter().map(|x| x.exp()).sum::<f64>().ln();
        let nll = total - x[target as usize];
        (1.0 - smoothing) * nll + smoothing * (total - x.iter().sum::<f64>() / classes as f64)
    };
    logits.chunks_exact(classes).zip(targets).map(row).sum::<f64>() / targets.len() as f64
}

fn inputs(rows: usize, classes: usize) -> (Vec<f32>, Vec<u32>) {
    let logits = noise(rows * classes, 1).iter().map(|x| 5.0 * x).collect();
    (logits, (0..rows).map(|row| (row * 7 % classes) as u32).collect())
}

#[test]
fn losses_and_gradients_match_the_definition() {
    for (rows, classes) in [(1, 1), (3, 2), (8, 10), (700, 65), (2, 40_000)] {
        for smoothing in [0.0, 0.1] {
            let (logits, targets) = inputs(rows, classes);
            let mut gradient = vec![f32::NAN; logits.len()];
            let loss = forward(classes, &logits, &targets, smoothing, &mut gradient, 2);
            let alone = forward(classes, &logits, &targets, smoothing, &mut [], 2);
            assert_eq!(loss.to_bits(), alone.to_bits());
            let of = |logits: &[f64]| reference(classes, logits, &targets, smoothing);
            let expected = of(&logits.iter().map(|&v| f64::from(v)).collect::<Vec<_>>());
            assert!((f64::from(loss) - expected).abs() <= 1e-6 * (1.0 + expected), "{loss}, not {expected}");
            check_gradients(&[&logits], &[&gradient], |inputs| of(&inputs[0]));
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    let (logits, targets) = inputs(700, 65);
    same_bits_with_any_threads(|parallelism| {
        let mut gradient = vec![f32::NAN; logits.len()];
        let loss = forward(65, &logits, &targets, 0.1, &mut gradient, parallelism);
        vec![vec![loss], gradient]
    });
}

#[test]
fn large_logits_do_not_overflow() {
    let mut gradient = [f32::NAN; 2];
    assert_eq!(forward(2, &[1e4, -1e4], &[1], 0.0, &mut gradient, 1), 2e4);
    assert_eq!(gradient, [1.0, -1.0]);
}

#[test]
fn smoothing_with_large_equal_logits_is_the_logarithm_of_the_classes() {
    let loss = forward(3, &[1e6; 3], &[1], 0.5, &mut [], 1);
    assert!((f64::from(loss) - 3f64.ln()).abs() < 1e-6, "{loss}");
}

#[test]
#[should_panic(expected = "not one of the 2 classes")]
fn targets_are_classes() {
    forward(2, &[0.0; 2], &[2], 0.0, &mut [], 1);
}
