//! How much longer the slowest of some ranks takes than a rank usually does. Each step ends with an exchange, for which all ranks
//! wait for the slowest of them.

/// Standard deviations of a normal distribution from its median to its 90th percentile.
const NINTH_DECILE: f64 = 1.281_551_565_5;

/// The part by which the slowest of `ranks` usually (in the median) takes longer than the median rank, if a tenth of a rank's steps
/// take longer than `1 + spread` times its median. Ranks vary independently, by a normal distribution.
pub fn wait(ranks: usize, spread: f64) -> f64 {
    spread / NINTH_DECILE * deviations(ranks)
}

/// The median of the largest of `n` independent values, in standard deviations: where the distribution function to the power of `n`
/// is 1/2. Exact to 0.00045 (Abramowitz and Stegun, 26.2.23).
fn deviations(n: usize) -> f64 {
    if n < 2 {
        return 0.0;
    }
    // 1 - 0.5^(1/n): where there are many, the direct way leaves no digits.
    let above = -(0.5_f64.ln() / n as f64).exp_m1();
    let t = (-2.0 * above.ln()).sqrt();
    let over = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let under = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - over / under
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are Python's `statistics.NormalDist().inv_cdf(0.5 ** (1 / n))`.
    #[test]
    fn the_largest_of_more_values_is_larger() {
        for (n, expected) in [
            (1, 0.0),
            (2, 0.544_952_136),
            (4, 0.998_148_883),
            (8, 1.385_198_061),
            (1024, 3.204_420_841),
            (1 << 20, 4.836_406_692),
        ] {
            assert!((deviations(n) - expected).abs() < 4.5e-4, "{n}: {}", deviations(n));
        }
    }

    #[test]
    fn a_rank_alone_waits_for_none() {
        assert_eq!((wait(1, 0.3), wait(8, 0.0)), (0.0, 0.0));
        // Of ten, one exceeds the 90th percentile more often than not.
        assert!(wait(10, 0.1) > 0.1 && wait(4, 0.1) < 0.1);
    }
}
