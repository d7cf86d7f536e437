//! Gradients travel in a half-precision type; what the cast loses is kept and added to the next step's gradients, so that
//! nothing is lost for good (Seide et al. 2014; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD"). What the group rounds
//! when it sums is not fed back, because no rank sees it.

use super::hook::CommHook;
use crate::comm::{CommError, Element, ProcessGroup, ReduceOp};
use burn::tensor::FloatDType;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A 16-bit float.
pub(super) trait Half: Element {
    /// The same type in a tensor.
    const DEVICE: FloatDType;
    /// The largest finite value.
    const LARGEST: f32;
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
    /// The next value towards zero of one above zero.
    fn below(self) -> Self;
}

macro_rules! half {
    ($($t:ty: $device:ident),*) => {$(
        impl Half for $t {
            const DEVICE: FloatDType = FloatDType::$device;
            const LARGEST: f32 = <$t>::MAX.to_f32_const();
            fn from_f32(value: f32) -> Self {
                <$t>::from_f32(value)
            }
            fn to_f32(self) -> f32 {
                <$t>::to_f32(self)
            }
            fn below(self) -> Self {
                <$t>::from_bits(self.to_bits() - 1)
            }
        }
    )*};
}
half!(bf16: BF16, f16: F16);

/// The hooks `bf16` and `f16`.
pub(super) struct ErrorFeedback<H> {
    wire: Vec<H>,
    /// By bucket: what this rank has not sent yet.
    residuals: Vec<Vec<f32>>,
}

impl<H> Default for ErrorFeedback<H> {
    fn default() -> Self {
        Self { wire: Vec::new(), residuals: Vec::new() }
    }
}

impl<H> ErrorFeedback<H> {
    fn residual(&mut self, bucket: usize) -> &mut Vec<f32> {
        if self.residuals.len() <= bucket {
            self.residuals.resize_with(bucket + 1, Vec::new);
        }
        &mut self.residuals[bucket]
    }
}

impl<H: Half> CommHook for ErrorFeedback<H>
where
    [H]: HalfFloatSliceExt,
{
    fn average(
        &mut self,
        bucket: usize,
        gradients: &mut [f32],
        group: &dyn ProcessGroup,
    ) -> Result<(), CommError> {
        let mut wire = std::mem::take(&mut self.wire);
        wire.resize(gradients.len(), H::from_f32(0.0));
        let residual = self.residual(bucket);
        residual.resize(gradients.len(), 0.0);
        compress(gradients, residual, &mut wire, limit::<H>(group.world_size()));
        let done = group.all_reduce((&mut wire).into(), ReduceOp::Mean);
        wire.convert_to_f32_slice(gradients);
        self.wire = wire;
        done
    }

    fn state(&self, bucket: usize) -> &[f32] {
        self.residuals.get(bucket).map_or(&[], Vec::as_slice)
    }

    fn restore(&mut self, bucket: usize, state: Vec<f32>) {
        *self.residual(bucket) = state;
    }
}

/// The largest value that each of `world` ranks may send so that no partial sum overflows.
pub(super) fn limit<H: Half>(world: usize) -> f32 {
    let share = H::LARGEST / world as f32;
    let nearest = H::from_f32(share);
    if nearest.to_f32() > share { nearest.below().to_f32() } else { nearest.to_f32() }
}

/// Elements that are converted at a time: half's slice conversions use the CPU's instructions.
const WIDE: usize = 128;

/// Writes `gradients + residual` to `wire`, within ±`limit`, and what is left of it to `residual`. A sum that is not finite is
/// sent as it is and leaves nothing.
fn compress<H: Half>(gradients: &[f32], residual: &mut [f32], wire: &mut [H], limit: f32)
where
    [H]: HalfFloatSliceExt,
{
    let (mut within, mut sent) = ([0f32; WIDE], [0f32; WIDE]);
    for ((g, e), c) in gradients.chunks(WIDE).zip(residual.chunks_mut(WIDE)).zip(wire.chunks_mut(WIDE)) {
        let (within, sent) = (&mut within[..g.len()], &mut sent[..g.len()]);
        for ((e, g), w) in e.iter_mut().zip(g).zip(within.iter_mut()) {
            *e += g;
            *w = if e.is_finite() { e.clamp(-limit, limit) } else { *e };
        }
        c.convert_from_f32_slice(within);
        c.convert_to_f32_slice(sent);
        for (e, s) in e.iter_mut().zip(sent.iter()) {
            *e = if e.is_finite() { *e - s } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::SoloGroup;

    /// Values of many magnitudes.
    fn gradients(n: usize, salt: u32) -> Vec<f32> {
        let mut x = 0x9e37_79b9u32 ^ salt;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..n).map(|i| next() * 10f32.powi(i as i32 % 7 - 4)).collect()
    }

    /// Subtracting a number's rounding from it is exact, so not a bit of a gradient is lost.
    fn what_is_sent_and_what_is_kept_are_the_gradient<H: Half>()
    where
        [H]: HalfFloatSliceExt,
    {
        for n in [1, 127, 128, 129, 1000] {
            let g = gradients(n, 7);
            let (mut residual, mut wire) = (vec![0.0; n], vec![H::from_f32(0.0); n]);
            compress(&g, &mut residual, &mut wire, limit::<H>(2));
            for i in 0..n {
                assert_eq!(wire[i].to_f32() + residual[i], g[i], "element {i} of {n}");
            }
            assert!(n < 100 || residual.iter().any(|e| *e != 0.0), "nothing was rounded");
            let owed = residual.clone();
            compress(&vec![0.0; n], &mut residual, &mut wire, limit::<H>(2));
            for i in 0..n {
                assert_eq!(wire[i].to_f32() + residual[i], owed[i], "element {i} of {n}, a step later");
            }
        }
    }

    #[test]
    fn nothing_is_lost() {
        what_is_sent_and_what_is_kept_are_the_gradient::<bf16>();
        what_is_sent_and_what_is_kept_are_the_gradient::<f16>();
    }

    #[test]
    fn what_is_too_large_is_sent_later() {
        let (mut residual, mut wire) = (vec![0.0], vec![f16::ZERO]);
        let mut sent = 0.0;
        for step in 0..10 {
            compress(&[if step == 0 { 200_000.0 } else { 0.0 }], &mut residual, &mut wire, limit::<f16>(2));
            assert!(wire[0].is_finite());
            sent += wire[0].to_f32();
        }
        assert_eq!((sent, residual[0]), (200_000.0, 0.0));
    }

    #[test]
    fn the_sum_over_all_ranks_never_overflows() {
        fn check<H: Half>() {
            for world in [1, 2, 3, 5, 7, 8, 1000, 4096] {
                let limit = limit::<H>(world);
                assert!(limit > 0.0 && H::from_f32(limit).to_f32() == limit, "{world}");
                assert!(limit <= H::LARGEST / world as f32, "{world}: {limit}");
                let sum = (0..world).fold(H::from_f32(0.0), |sum, _| H::from_f32(sum.to_f32() + limit));
                assert!(sum.to_f32().is_finite(), "{world} x {limit}");
            }
        }
        check::<bf16>();
        check::<f16>();
    }

    #[test]
    fn what_is_not_finite_stays_so_and_leaves_no_residual() {
        fn check<H: Half>()
        where
            [H]: HalfFloatSliceExt,
        {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut hook = ErrorFeedback::<H>::default();
                let mut values = [1.0, bad, -2.0];
                hook.average(0, &mut values, &SoloGroup::new()).unwrap();
                assert!(!values[1].is_finite() && values[0] == 1.0 && values[2] == -2.0, "{values:?}");
                assert_eq!(hook.state(0), [0.0; 3]);
            }
        }
        check::<bf16>();
        check::<f16>();
    }

    /// f(x) = a (x - b)^2 / 2 with a minimum that bf16 can't hold: rounding alone would stall where the gradient's rounding
    /// error is systematic; with feedback the steps sum to the true ones.
    #[test]
    fn a_quadratic_reaches_the_minimum_that_it_reaches_uncompressed() {
        let (a, b): (Vec<f32>, Vec<f32>) = (vec![1.0, 0.3, 2.0], vec![1.234_567, -0.000_123_4, 1234.567]);
        let descend = |hook: &mut dyn CommHook, plain: bool| {
            let mut x = vec![0f32; 3];
            for _ in 0..400 {
                let mut g: Vec<f32> = (0..3).map(|i| a[i] * (x[i] - b[i])).collect();
                if !plain {
                    hook.average(0, &mut g, &SoloGroup::new()).unwrap();
                }
                x.iter_mut().zip(&g).for_each(|(x, g)| *x -= 0.2 * g);
            }
            x
        };
        let mut hook = ErrorFeedback::<bf16>::default();
        let (plain, fed) = (descend(&mut hook, true), descend(&mut hook, false));
        for i in 0..3 {
            assert!((plain[i] - fed[i]).abs() <= 4e-6 * b[i].abs(), "{plain:?} {fed:?}");
        }
    }

    #[test]
    fn a_restored_hook_goes_on_as_the_one_that_was_saved() {
        let group = SoloGroup::new();
        let mut first = ErrorFeedback::<bf16>::default();
        for bucket in [0, 2] {
            first.average(bucket, &mut gradients(50, bucket as u32), &group).unwrap();
        }
        let mut second = ErrorFeedback::<bf16>::default();
        for bucket in 0..3 {
            second.restore(bucket, first.state(bucket).to_vec());
        }
        for bucket in [0, 2] {
            let (mut a, mut b) = (gradients(50, 9), gradients(50, 9));
            first.average(bucket, &mut a, &group).unwrap();
            second.average(bucket, &mut b, &group).unwrap();
            assert_eq!(a, b);
            let mut c = gradients(50, 9);
            ErrorFeedback::<bf16>::default().average(bucket, &mut c, &group).unwrap();
            assert_ne!(a, c, "the residual had no effect");
        }
        assert!(first.state(1).is_empty() && first.state(7).is_empty());
    }
}
