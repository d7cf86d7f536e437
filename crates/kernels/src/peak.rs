//! What this machine can do, by which a rate is a share.

use super::linear::{Activation, LinearShape, Terms, forward};
use std::time::{Duration, Instant};

/// The sides of the matrices, which fit a cache.
const SIDE: usize = 384;
const ROUNDS: usize = 8;

/// Floating-point operations per second of matrix products in f32: the best of some by each thread of the current rayon pool, all at the
/// same time. Takes about 15 ms.
pub fn product_flops_per_s() -> f64 {
    match rayon::current_num_threads() {
        1 => of_thread(),
        _ => rayon::broadcast(|_| of_thread()).iter().sum(),
    }
}

fn of_thread() -> f64 {
    let shape = LinearShape { rows: SIDE, inputs: SIDE, outputs: SIDE };
    let (x, w) = (vec![0.5; SIDE * SIDE], vec![0.25; SIDE * SIDE]);
    let mut out = vec![0.0; SIDE * SIDE];
    let mut timed = || {
        let begun = Instant::now();
        let terms = Terms { weight: &w, bias: None, residual: None };
        forward(shape, &x, terms, Activation::None, &mut out, &mut [], 1);
        begun.elapsed()
    };
    // The first one also touches the memory.
    timed();
    let best = (0..ROUNDS).map(|_| timed()).min().unwrap_or(Duration::MAX);
    2.0 * (SIDE as f64).powi(3) / best.max(Duration::from_nanos(1)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_of_all_threads_is_their_sum() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        for rate in [of_thread(), pool.install(product_flops_per_s)] {
            assert!(rate.is_finite() && rate > 1e6, "{rate}");
        }
    }
}
