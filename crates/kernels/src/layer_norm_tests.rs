//! Layer normalisation compared with its definition in f64, gradients with central differences.

use super::super::testing::{check_gradients, close, exact, noise, same_bits_with_any_threads};
use super::*;

const EPS: f32 = 1e-5;

/// `inputs`: x, weight, bias.
fn reference(inputs: &[Vec<f64>]) -> Vec<f64> {
    let width = inputs[1].len();
    let row = |x: &[f64]| {
        let mean = x.iter().sum::<f64>() / width as f64;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / width as f64;
        let inv_std = 1.0 / (variance + f64::from(EPS)).sqrt();
        (0..width).map(|i| (x[i] - mean) * inv_std * inputs[1][i] + inputs[2][i]).collect::<Vec<_>>()
    };
    inputs[0].chunks_exact(width).flat_map(row).collect()
}

/// Output, then the gradients of x, weight and bias.
fn run(x: &[f32], weight: &[f32], bias: &[f32], dy: &[f32], parallelism: usize) -> Vec<Vec<f32>> {
    let nan = |len| vec![f32::NAN; len];
    let width = weight.len();
    let (mut out, mut statistics) = (nan(x.len()), vec![[f32::NAN; 2]; x.len() / width]);
    forward(x, weight, bias, EPS, &mut out, &mut statistics, parallelism);
    let (mut dx, mut dw, mut db) = (nan(x.len()), nan(width), nan(width));
    let saved = LayerNormInputs { x, weight, statistics: &statistics };
    backward(saved, dy, &mut dx, &mut dw, &mut db, parallelism);
    vec![out, dx, dw, db]
}

#[test]
fn outputs_and_gradients_match_the_definition() {
    for (rows, width) in [(3, 17), (40, 128), (700, 48)] {
        let (x, weight, bias, dy) =
            (noise(rows * width, 1), noise(width, 2), noise(width, 3), noise(rows * width, 4));
        let inputs = [&x[..], &weight, &bias];
        let given = inputs.map(exact);
        let results = run(&x, &weight, &bias, &dy, 2);
        close("output", &results[0], &reference(&given), 3e-6);
        let gradients: Vec<&[f32]> = results[1..].iter().map(|g| &g[..]).collect();
        check_gradients(&inputs, &gradients, |inputs| {
            reference(inputs).iter().zip(&dy).map(|(y, &dy)| y * f64::from(dy)).sum()
        });
    }
}

#[test]
fn the_bits_do_not_depend_on_the_number_of_threads() {
    for (rows, width) in [(1, 5), (700, 48), (1500, 128)] {
        let (x, weight, bias, dy) =
            (noise(rows * width, 1), noise(width, 2), noise(width, 3), noise(rows * width, 4));
        same_bits_with_any_threads(|parallelism| run(&x, &weight, &bias, &dy, parallelism));
    }
}

#[test]
fn without_rows_the_weights_have_no_gradient() {
    assert_eq!(run(&[], &[1.0; 3], &[0.0; 3], &[], 2)[1..], [vec![], vec![0.0; 3], vec![0.0; 3]]);
}
