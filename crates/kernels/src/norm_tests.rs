//! Batch normalisation compared with its definition in f64, and the gradient with central differences.

use super::super::testing::noise;
use super::*;
use proptest::prelude::*;

struct Run {
    out: Vec<f32>,
    mean: Vec<f32>,
    variance: Vec<f32>,
    dx: Vec<f32>,
    dweight: Vec<f32>,
    dbias: Vec<f32>,
}

impl Run {
    fn bits(&self) -> Vec<u32> {
        let all = [&self.out, &self.mean, &self.variance, &self.dx, &self.dweight, &self.dbias];
        all.into_iter().flatten().map(|v| v.to_bits()).collect()
    }
}

fn run(shape: NormShape, x: &[f32], dy: &[f32], relu: bool, parallelism: usize) -> Run {
    let c = shape.channels;
    let (weight, bias) = (noise(c, 8), noise(c, 9));
    let nan = |len| vec![f32::NAN; len];
    let (mut out, mut mean, mut variance, mut inv_std) = (nan(x.len()), nan(c), nan(c), nan(c));
    let statistics = Statistics { mean: &mut mean, variance: &mut variance, inv_std: &mut inv_std };
    forward_train(shape, x, &weight, &bias, 1e-5, relu, &mut out, statistics, parallelism);
    let (mut dx, mut dweight, mut dbias) = (nan(x.len()), nan(c), nan(c));
    let saved = BatchNormInputs {
        x,
        mean: &mean,
        inv_std: &inv_std,
        weight: &weight,
        relu_out: relu.then_some(&out[..]),
    };
    backward(shape, saved, dy, &mut dx, &mut dweight, &mut dbias, parallelism);
    let mut eval = nan(x.len());
    forward_eval(shape, x, &weight, &bias, &mean, &variance, 1e-5, relu, &mut eval, parallelism);
    for (&a, &b) in eval.iter().zip(&out) {
        assert!((a - b).abs() <= 1e-5 * (1.0 + b.abs()), "evaluation {a}, training {b}");
    }
    Run { out, mean, variance, dx, dweight, dbias }
}

fn close(what: &str, got: f32, expected: f64, magnitude: f64) {
    let error = (f64::from(got) - expected).abs();
    assert!(error <= 3e-6 * (magnitude + 1.0), "{what}: {got}, not {expected}");
}

/// Checks all results for one channel in f64.
fn check_channel(shape: NormShape, channel: usize, x: &[f32], dy: &[f32], relu: bool, got: &Run) {
    let c = shape.channels;
    let (weight, bias) = (f64::from(noise(c, 8)[channel]), f64::from(noise(c, 9)[channel]));
    let at: Vec<usize> = (0..shape.batch)
        .flat_map(|n| (0..shape.pixels).map(move |p| (n * c + channel) * shape.pixels + p))
        .collect();
    let count = at.len() as f64;
    let mean = at.iter().map(|&i| f64::from(x[i])).sum::<f64>() / count;
    let variance = at.iter().map(|&i| (f64::from(x[i]) - mean).powi(2)).sum::<f64>() / count;
    let inv_std = 1.0 / (variance + f64::from(1e-5f32)).sqrt();
    close("mean", got.mean[channel], mean, mean.abs());
    // A mean rounded to f32 changes the variance by the square of the rounding error.
    close("variance", got.variance[channel], variance, variance + (mean * 6e-8).powi(2) / 3e-6);
    let normal: Vec<f64> = at.iter().map(|&i| (f64::from(x[i]) - mean) * inv_std).collect();
    // The gradient is checked with the ReLU's decision from the result: at 0 either is correct.
    let open = |i: usize| !relu || got.out[i] > 0.0;
    let dy: Vec<f64> = at.iter().map(|&i| if open(i) { f64::from(dy[i]) } else { 0.0 }).collect();
    let dbias: f64 = dy.iter().sum();
    let dweight: f64 = dy.iter().zip(&normal).map(|(dy, x)| dy * x).sum();
    let slack = 30.0 * (1.0 + mean.abs() * inv_std);
    close("dbias", got.dbias[channel], dbias, slack);
    close("dweight", got.dweight[channel], dweight, slack * count.sqrt());
    for (j, &i) in at.iter().enumerate() {
        let out = normal[j] * weight + bias;
        close("out", got.out[i], if relu { out.max(0.0) } else { out }, slack);
        let dx = weight * inv_std * (dy[j] - dbias / count - normal[j] * dweight / count);
        close("dx", got.dx[i], dx, slack * inv_std * (1.0 + normal[j].abs()));
    }
}

fn check(shape: NormShape, offset: f32, relu: bool) {
    let len = shape.batch * shape.channels * shape.pixels;
    let x: Vec<f32> = noise(len, 5).iter().map(|x| x + offset).collect();
    let dy = noise(len, 6);
    let got = run(shape, &x, &dy, relu, 1);
    for channel in 0..shape.channels {
        check_channel(shape, channel, &x, &dy, relu, &got);
    }
    for parallelism in [1, 2, 5] {
        assert_eq!(
            got.bits(),
            run(shape, &x, &dy, relu, parallelism).bits(),
            "{parallelism} threads: {shape:?}"
        );
    }
}

#[test]
fn large_tensors_and_large_means() {
    for relu in [false, true] {
        for offset in [0.0, 3.0, -100.0] {
            check(NormShape { batch: 128, channels: 20, pixels: 64 }, offset, relu);
            check(NormShape { batch: 130, channels: 700, pixels: 1 }, offset, relu);
            check(NormShape { batch: 64, channels: 3, pixels: 1024 }, offset, relu);
        }
    }
}

#[test]
fn nan_propagates_through_the_fused_relu() {
    let shape = NormShape { batch: 2, channels: 1, pixels: 2 };
    let x = [1.0, f32::NAN, 2.0, 3.0];
    let (mut out, mut mean, mut variance, mut inv_std) = ([0.0; 4], [0.0], [0.0], [0.0]);
    let statistics = Statistics { mean: &mut mean, variance: &mut variance, inv_std: &mut inv_std };
    forward_train(shape, &x, &[1.0], &[0.0], 1e-5, true, &mut out, statistics, 1);
    assert!(out.iter().all(|v| v.is_nan()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_shape(batch in 1usize..70, channels in 1usize..40, pixels in 1usize..40, relu: bool) {
        check(NormShape { batch, channels, pixels }, 0.5, relu);
    }
}
