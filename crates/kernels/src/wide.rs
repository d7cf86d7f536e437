//! Compiles a loop several times, for plain x86-64, AVX2 and AVX-512, and selects a variant at run time. All variants
//! are the same Rust code, so rounding and order of sums are equal: Rust never reorders or contracts float arithmetic.
//! `mul_add` rounds once in all of them; it is an instruction but in the plain one, where it is a call and slow.

#![allow(unsafe_code)]

/// `wide!(fn name(arg: Type, …) { body });` defines `name`, which runs `body` in the widest variant that the processor
/// supports. Generic parameters are in brackets: `fn name[T: Copy](…)`.
macro_rules! wide {
    ($(#[$meta:meta])* $vis:vis fn $name:ident$([$($generic:tt)*])?($($arg:ident: $ty:ty),* $(,)?) $body:block) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name$(<$($generic)*>)?($($arg: $ty),*) {
            #[inline(always)]
            fn plain$(<$($generic)*>)?($($arg: $ty),*) $body

            #[allow(unsafe_code)]
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
                fn with_avx512$(<$($generic)*>)?($($arg: $ty),*) {
                    plain($($arg),*)
                }

                #[target_feature(enable = "avx2,fma")]
                fn with_avx2$(<$($generic)*>)?($($arg: $ty),*) {
                    plain($($arg),*)
                }

                if is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                {
                    // SAFETY: a safe function whose only requirement, the four features, was just checked.
                    return unsafe { with_avx512($($arg),*) };
                }
                if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
                    // SAFETY: a safe function whose only requirements, AVX2 and FMA, were just checked.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

pub(crate) use wide;

#[cfg(test)]
mod tests {
    wide! {
        fn scale_and_add(out: &mut [f32], x: &[f32], scale: f32) {
            for (o, &x) in out.iter_mut().zip(x) {
                *o = x.mul_add(0.3, *o + x * scale);
            }
        }
    }

    #[test]
    fn wide_variants_round_like_plain_code() {
        let x: Vec<f32> = (0..1003).map(|i| (i as f32).sin()).collect();
        let mut wide: Vec<f32> = (0..1003).map(|i| (i as f32).cos()).collect();
        let plain: Vec<f32> =
            wide.iter().zip(&x).map(|(&o, &x)| x.mul_add(0.3, o + std::hint::black_box(x * 0.7))).collect();
        scale_and_add(&mut wide, &x, 0.7);
        assert_eq!(wide, plain);
    }
}
