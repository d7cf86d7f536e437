//! For tests, also of the crates that use the kernels: inputs, and comparison with definitions in f64.

/// Values in [-1, 1) from a linear congruential generator, the same for the same seed.
pub fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 24) as f32) * 2.0 - 1.0
    };
    (0..len).map(next).collect()
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[cfg(test)]
pub(crate) fn exact(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

#[cfg(test)]
#[track_caller]
pub(crate) fn close(what: &str, got: &[f32], expected: &[f64], tolerance: f64) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (&got, &expected)) in got.iter().zip(expected).enumerate() {
        let error = (f64::from(got) - expected).abs();
        assert!(error <= tolerance * (1.0 + expected.abs()), "{what}[{i}]: {got}, not {expected}");
    }
}

/// Compares gradients of `loss` by each of `inputs` with central differences, at up to 50 elements each.
#[cfg(test)]
#[track_caller]
pub(crate) fn check_gradients(inputs: &[&[f32]], gradients: &[&[f32]], loss: impl Fn(&[Vec<f64>]) -> f64) {
    let mut at: Vec<Vec<f64>> = inputs.iter().map(|x| x.iter().map(|&v| f64::from(v)).collect()).collect();
    const H: f64 = 1e-4;
    for (k, gradient) in gradients.iter().enumerate() {
        assert_eq!(gradient.len(), inputs[k].len(), "gradient {k}");
        for i in (0..gradient.len()).step_by(gradient.len() / 50 + 1) {
            let x = at[k][i];
            let mut loss_at = |value| {
                at[k][i] = value;
                loss(&at)
            };
            let expected = (loss_at(x + H) - loss_at(x - H)) / (2.0 * H);
            at[k][i] = x;
            let error = (f64::from(gradient[i]) - expected).abs();
            assert!(
                error <= 1e-5 * (1.0 + expected.abs()),
                "gradient {k}[{i}]: {}, not {expected}",
                gradient[i]
            );
        }
    }
}

/// Asserts that `run` gives the same bits with 1 to 64 threads.
#[cfg(test)]
#[track_caller]
pub(crate) fn same_bits_with_any_threads(run: impl Fn(usize) -> Vec<Vec<f32>>) {
    let all = |parallelism| run(parallelism).iter().map(|v| bits(v)).collect::<Vec<_>>();
    let expected = all(1);
    for parallelism in [2, 3, 4, 7, 8, 16, 33, 64] {
        assert!(all(parallelism) == expected, "{parallelism} threads");
    }
}
