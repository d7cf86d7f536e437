//! `exp` and `erf` in f32 without branches or tables, so that loops over them compile to vector instructions. They
//! neither call libm nor contract a product and a sum, so their bits are the same on every processor.

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
    let rounded = inside * LOG2_E + ROUND;
    let n = rounded - ROUND;
    let r = (inside - n * LN_2[0]) - n * LN_2[1];
    // Cephes' polynomial for e^r - 1 - r.
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_2e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let e_r = p * (r * r) + r + 1.0;
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

/// The error function to within 3 units in the last place. NaN is propagated. Source of the two polynomials: N. Juffa's
/// `erff` (Stack Overflow, 35148198), there with fused operations.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let (t, s) = (x.abs(), x * x);
    let small = -5.967_617e-4;
    let small = small * s + 4.991_194_2e-3;
    let small = small * s - 2.676_813_5e-2;
    let small = small * s + 1.128_199_25e-1;
    let small = small * s - 3.761_253_4e-1;
    let small = small * s + 1.283_791_7e-1;
    let small = small * x + x;
    // erf(t) = 1 - exp(-large); beyond 4 it rounds to 1.
    let t = if t > 4.0 { 4.0 } else { t };
    let s = t * t;
    let upper = -1.728_534_7e-5 * t + 3.831_972e-4;
    let lower = -3.883_964_4e-3 * t + 2.425_462_2e-2;
    let large = upper * s + lower;
    let large = large * t - 1.067_778_8e-1;
    let large = large * t - 6.348_467e-1;
    let large = large * t - 1.287_175_1e-1;
    let large = large * t - t;
    let large = (1.0 - exp(large)).copysign(x);
    if t > 0.927_734_4 { large } else { small }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn ulps(got: f32, expected: f64) -> f64 {
        let near = expected as f32;
        let unit = f64::from(f32::from_bits(near.abs().to_bits() + 1)) - f64::from(near.abs());
        (f64::from(got) - expected).abs() / unit
    }

    /// erf by its Taylor series (small x) or the continued fraction of erfc, in f64.
    pub(in crate::kernels) fn erf_f64(x: f64) -> f64 {
        let t = x.abs();
        let value = if t < 3.0 {
            let (mut term, mut sum) = (t, t);
            for n in 1..200 {
                term *= -t * t / f64::from(n);
                sum += term / f64::from(2 * n + 1);
            }
            sum * std::f64::consts::FRAC_2_SQRT_PI
        } else {
            let mut fraction = t;
            for n in (1..200).rev() {
                fraction = t + f64::from(n) / 2.0 / fraction;
            }
            1.0 - (-t * t).exp() / fraction / std::f64::consts::PI.sqrt()
        };
        value.copysign(x)
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

    #[test]
    fn erf_is_within_3_ulps() {
        let worst = (-500_000..500_000).map(|i| i as f32 * 1e-5).map(|x| ulps(erf(x), erf_f64(f64::from(x))));
        assert!(worst.fold(0.0, f64::max) <= 3.0);
    }

    #[test]
    fn erf_is_odd_saturates_and_propagates_nan() {
        assert_eq!((erf(0.0), erf(9.0), erf(-9.0)), (0.0, 1.0, -1.0));
        assert_eq!((erf(f32::INFINITY), erf(f32::NEG_INFINITY)), (1.0, -1.0));
        assert_eq!(erf(-0.3), -erf(0.3));
        assert!(erf(f32::NAN).is_nan());
    }
}
