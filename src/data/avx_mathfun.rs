//! One lane of the single-precision `log` and `sincos` that torch's vectorised `randn` uses on x86-64 (`avx_mathfun.h`,
//! after Cephes). `f32::ln` and `f32::sin_cos` are as exact but differ in the last bit, and equal bits are the point. Where
//! compiled torch fuses a multiplication and an addition, this does too.

// The constants are quoted as Cephes writes them.
#![allow(clippy::excessive_precision)]

/// Natural logarithm of a positive normal number.
pub(super) fn log256(value: f32) -> f32 {
    let bits = value.to_bits();
    let mantissa = f32::from_bits(bits & 0x007f_ffff | 0x3f00_0000); // in [0.5, 1)
    let mut exponent = ((bits >> 23) as i32 - 126) as f32;
    let x = if mantissa < std::f32::consts::FRAC_1_SQRT_2 {
        exponent -= 1.0;
        mantissa - 1.0 + mantissa
    } else {
        mantissa - 1.0
    };
    const P: [f32; 9] = [
        7.037_683_629_2e-2,
        -1.151_461_031_0e-1,
        1.167_699_874_0e-1,
        -1.242_014_084_6e-1,
        1.424_932_278_7e-1,
        -1.666_805_766_5e-1,
        2.000_071_476_5e-1,
        -2.499_999_399_3e-1,
        3.333_333_117_4e-1,
    ];
    let z = x * x;
    let poly = P[1..].iter().fold(P[0], |y, &c| y.mul_add(x, c)) * x;
    let y = poly.mul_add(z, exponent * -2.121_944_40e-4);
    let y = (-z).mul_add(0.5, y);
    exponent.mul_add(0.693_359_375, x + y)
}

/// Sine and cosine of an angle of moderate size (at most a few thousand turns).
pub(super) fn sincos256(value: f32) -> (f32, f32) {
    let octant = ((value.abs() * 1.273_239_544_735_16) as i32 + 1) & !1;
    let turns = octant as f32;
    let x = turns.mul_add(-0.785_156_25, value.abs());
    let x = turns.mul_add(-2.418_756_484_985_351_562_5e-4, x);
    let x = turns.mul_add(-3.774_894_977_445_941_08e-8, x);
    let z = x * x;

    let c = 2.443_315_711_809_948e-5f32.mul_add(z, -1.388_731_625_493_765e-3);
    let c = c.mul_add(z, 4.166_664_568_298_827e-2) * z;
    let cos_poly = c.mul_add(z, -(z * 0.5)) + 1.0;
    let s = (-1.951_529_589_1e-4f32).mul_add(z, 8.332_160_873_6e-3);
    let s = s.mul_add(z, -1.666_665_461_1e-1) * z;
    let sin_poly = s.mul_add(x, x);

    let (sin, cos) = if octant & 2 == 0 { (sin_poly, cos_poly) } else { (cos_poly, sin_poly) };
    let sin_negative = value.is_sign_negative() != (octant & 4 != 0);
    let cos_negative = (octant - 2) & 4 == 0;
    (if sin_negative { -sin } else { sin }, if cos_negative { -cos } else { cos })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_to_the_exact_functions() {
        for i in 1..20_000u32 {
            let u = i as f32 / 20_000.0;
            assert!((log256(u) - u.ln()).abs() <= 2e-7 * u.ln().abs().max(1.0), "log {u}");
            let theta = u * std::f32::consts::TAU;
            for angle in [theta, -theta] {
                let (sin, cos) = sincos256(angle);
                assert!((sin - angle.sin()).abs() < 3e-7, "sin {angle}: {sin}");
                assert!((cos - angle.cos()).abs() < 3e-7, "cos {angle}: {cos}");
            }
        }
    }
}
