//! `exp` and the normal distribution in f32 without branches or tables, for loops in [`wide!`](super::wide), which compile to vector
//! instructions. Their bits are the same on every processor: a product and a sum are rounded once only where `mul_add` says so, and
//! nothing of libm is called but that, which is exact.

const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 in two parts; the products of the first with small integers are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Adding it to a float of magnitude below 2^22 rounds it to an integer, which is then in the low bits.
const ROUND: f32 = 12_582_912.0;
/// `exp` is zero below (results would be subnormal) and infinite above (2^128 has no exponent of its own).
const EXP_RANGE: [f32; 2] = [-87.336_54, 88.37];

/// e^x to within 1 unit in the last place; 0 where the result would be subnormal, infinite above 88.37 (where the
/// largest floats would be right up to 88.72). NaN is propagated.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let [low, high] = EXP_RANGE;
    let inside = if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    };
    let rounded = inside.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], inside));
    // Cephes' polynomial for e^r - 1 - r.
    let p = 1.987_569_1e-4_f32;
    let p = p.mul_add(r, 1.398_2e-3);
    let p = p.mul_add(r, 8.333_452e-3);
    let p = p.mul_add(r, 4.166_579_6e-2);
    let p = p.mul_add(r, 1.666_666_5e-1);
    let p = p.mul_add(r, 0.5);
    let e_r = p.mul_add(r * r, r) + 1.0;
    let power = f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23));
    let value = e_r * power;
    if x < low {
        0.0
    } else if x > high {
        f32::INFINITY
    } else {
        value
    }
}

/// 1 / sqrt(2 pi)
const DENSITY_AT_0: f32 = 0.398_942_3;
/// With `t = 1 / (1 + SLOWNESS a)`, `t` times the polynomial of these coefficients, the highest power first, is
/// `exp(a^2 / 2) * Phi(-a)` to within 1.5e-7 of itself for `0 <= a <= 13`: a fit of minimal relative error in f64.
const SLOWNESS: f32 = 0.3;
const TAIL: [f32; 8] = [
    0.036_197_3,
    -0.159_388_88,
    0.210_137_3,
    -0.057_185_38,
    0.130_426_32,
    0.099_344_03,
    0.120_846_04,
    0.119_623_23,
];

/// The standard normal distribution function and its density at `z`, by one exponential for both. NaN is
/// propagated; the tails are zero where `exp` is.
#[inline(always)]
pub(super) fn normal(z: f32) -> (f32, f32) {
    let e = exp(-0.5 * z * z);
    let t = 1.0 / SLOWNESS.mul_add(z.abs(), 1.0);
    let mut tail = TAIL[0];
    for coefficient in &TAIL[1..] {
        tail = tail.mul_add(t, *coefficient);
    }
    let tail = tail * t * e;
    (if z < 0.0 { tail } else { 1.0 - tail }, DENSITY_AT_0 * e)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn ulps(got: f32, expected: f64) -> f64 {
        let near = expected as f32;
        let unit = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        (f64::from(got) - expected).abs() / unit
    }

    pub(crate) fn erf_f64(x: f64) -> f64 {
        (1.0 - erfc_f64(x.abs())).copysign(x)
    }

    /// `1 - erf(t)` for `t >= 0`, by the Taylor series of erf (small t) or the continued fraction of erfc, in f64.
    fn erfc_f64(t: f64) -> f64 {
        if t < 2.0 {
            let (mut term, mut sum) = (t, t);
            for n in 1..200 {
                term *= -t * t / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            1.0 - sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let mut fraction = t;
            for n in (1..200).rev() {
                fraction = t + f64::from(n) / 2.0 / fraction;
            }
            (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
        }
    }

    #[test]
    fn exp_is_within_1_ulp() {
        let worst =
            (0..400_000).map(|i| -87.3 + i as f32 * 4.39e-4).map(|x| ulps(exp(x), f64::from(x).exp()));
        assert!(worst.fold(0.0, f64::max) <= 1.0);
    }

    #[test]
    fn exp_saturates_and_propagates_nan() {
        assert_eq!((exp(0.0), exp(-0.0), exp(-88.0), exp(89.0)), (1.0, 1.0, 0.0, f32::INFINITY));
        assert_eq!((exp(f32::NEG_INFINITY), exp(f32::INFINITY)), (0.0, f32::INFINITY));
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(88.36).is_finite());
    }

    /// Phi and its density, in f64.
    fn normal_f64(z: f64) -> (f64, f64) {
        let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let tail = 0.5 * erfc_f64(z.abs() * std::f64::consts::FRAC_1_SQRT_2);
        (if z < 0.0 { tail } else { 1.0 - tail }, density)
    }

    #[test]
    fn the_normal_distribution_is_exact_to_a_few_roundings() {
        for i in -130_000..130_000 {
            let z = i as f32 * 1e-4;
            let (phi, density) = normal(z);
            let (phi_64, density_64) = normal_f64(f64::from(z));
            // The argument of the exponential is rounded, by up to z^2 / 2 times half an f32's precision.
            let allowed = 6e-7 + f64::from(z * z) * 6e-8;
            for (got, expected) in [(phi, phi_64), (density, density_64)] {
                let error = (f64::from(got) - expected).abs() / expected;
                assert!(error <= allowed, "{z}: {got}, {expected}: {error:e}");
            }
        }
    }

    #[test]
    fn the_normal_distribution_saturates_and_propagates_nan() {
        assert_eq!((normal(-14.0), normal(14.0)), ((0.0, 0.0), (1.0, 0.0)));
        assert_eq!((normal(f32::NEG_INFINITY), normal(f32::INFINITY)), ((0.0, 0.0), (1.0, 0.0)));
        assert!(normal(f32::NAN).0.is_nan() && normal(f32::NAN).1.is_nan());
        assert!((normal(0.0).0 - 0.5).abs() < 1e-7 && normal(0.0) == normal(-0.0));
    }
}
