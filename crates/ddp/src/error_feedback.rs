//! Error feedback: gradients are sent in a half-precision type, and the rounding error of the cast is added to the next
//! step's gradients (Seide et al. 2014; Karimireddy et al. 2019, "Error Feedback Fixes SignSGD"). Rounding inside the
//! group's sum is not fed back, because no rank sees it. Values that overflow the type become infinite on all ranks,
//! and the step is treated like any other overflow: training never uses saturated gradients.

use super::hook::CommHook;
use burn::tensor::FloatDType;
use collectives::{CommError, Element, ProcessGroup, ReduceOp};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A 16-bit float.
pub(super) trait Half: Element {
    /// The corresponding tensor type.
    const DEVICE: FloatDType;
    /// The largest finite value.
    const LARGEST: f32;
}

macro_rules! half {
    ($($t:ty: $device:ident),*) => {$(
        impl Half for $t {
            const DEVICE: FloatDType = FloatDType::$device;
            const LARGEST: f32 = <$t>::MAX.to_f32_const();
        }
    )*};
}
half!(bf16: BF16, f16: F16);

/// The hooks `bf16` and `f16`.
pub(super) struct ErrorFeedback<H> {
    wire: Vec<H>,
    /// By bucket: the residual that this rank has not sent yet.
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
        wire.resize(gradients.len(), H::zeroed());
        let residual = self.residual(bucket);
        residual.resize(gradients.len(), 0.0);
        let divisor = divisor(group.world_size());
        compress(gradients, residual, &mut wire, divisor);
        let done = group.all_reduce((&mut wire).into(), ReduceOp::Mean);
        wire.convert_to_f32_slice(gradients);
        gradients.iter_mut().for_each(|g| *g *= divisor);
        self.wire = wire;
        done
    }

    fn state(&self, bucket: usize) -> &[f32] {
        self.residuals.get(bucket).map_or(&[], Vec::as_slice)
    }

    fn restore(&mut self, bucket: usize, state: Vec<f32>) {
        *self.residual(bucket) = state;
    }

    fn rescale(&mut self, factor: f32) {
        self.residuals.iter_mut().flatten().for_each(|e| *e *= factor);
    }
}

/// Each of `world` ranks divides its gradients by this before sending, so that a sum over the ranks of values within the
/// type's range stays within it. A power of two, so that the division does not round.
pub(super) fn divisor(world: usize) -> f32 {
    world.next_power_of_two() as f32
}

/// Elements converted at a time: the slice conversions of `half` use the CPU's instructions.
const WIDE: usize = 128;

/// Writes `gradients + residual`, divided by `divisor`, to `wire`, and the rounding error to `residual`. Elements that
/// are not finite, or overflow on the wire, get a residual of zero.
fn compress<H: Half>(gradients: &[f32], residual: &mut [f32], wire: &mut [H], divisor: f32)
where
    [H]: HalfFloatSliceExt,
{
    let (mut within, mut sent) = ([0f32; WIDE], [0f32; WIDE]);
    let share = 1.0 / divisor;
    for ((g, e), c) in gradients.chunks(WIDE).zip(residual.chunks_mut(WIDE)).zip(wire.chunks_mut(WIDE)) {
        let (within, sent) = (&mut within[..g.len()], &mut sent[..g.len()]);
        for ((e, g), w) in e.iter_mut().zip(g).zip(within.iter_mut()) {
            *e += g;
            let scaled = *e * share;
            *w = if scaled.abs() > H::LARGEST { scaled * f32::INFINITY } else { scaled };
        }
        c.convert_from_f32_slice(within);
        c.convert_to_f32_slice(sent);
        for (e, s) in e.iter_mut().zip(sent.iter()) {
            // The largest bf16 times `divisor` may overflow f32.
            let sent = s * divisor;
            *e = if sent.is_finite() { *e - sent } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::on_ranks;
    use collectives::SoloGroup;

    /// Values of many magnitudes.
    fn gradients(n: usize, salt: u32) -> Vec<f32> {
        let mut x = 0x9e37_79b9u32 ^ salt;
        let mut next = || {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..n).map(|i| next() * 10f32.powi(i as i32 % 7 - 4)).collect()
    }

    /// The rounding error of a cast is exactly representable, so the sum of both parts equals the gradient.
    fn sent_value_plus_residual_equals_the_gradient<H: Half>()
    where
        [H]: HalfFloatSliceExt,
    {
        for n in [1, 127, 128, 129, 1000] {
            let g = gradients(n, 7);
            let (mut residual, mut wire) = (vec![0.0; n], vec![H::zeroed(); n]);
            let sent = |wire: &[H]| {
                let mut sent = vec![0f32; n];
                wire.convert_to_f32_slice(&mut sent);
                sent.iter().map(|s| s * 4.0).collect::<Vec<f32>>()
            };
            compress(&g, &mut residual, &mut wire, 4.0);
            for i in 0..n {
                assert_eq!(sent(&wire)[i] + residual[i], g[i], "element {i} of {n}");
            }
            assert!(n < 100 || residual.iter().any(|e| *e != 0.0), "nothing was rounded");
            let owed = residual.clone();
            compress(&vec![0.0; n], &mut residual, &mut wire, 4.0);
            for i in 0..n {
                assert_eq!(sent(&wire)[i] + residual[i], owed[i], "element {i} of {n}, a step later");
            }
        }
    }

    #[test]
    fn compression_loses_nothing() {
        sent_value_plus_residual_equals_the_gradient::<bf16>();
        sent_value_plus_residual_equals_the_gradient::<f16>();
    }

    /// 65504 is the largest f16.
    #[test]
    fn values_in_range_are_averaged_and_larger_ones_become_infinite() {
        for world in [2, 3, 5] {
            let ranks = on_ranks(world, |group| {
                let mut hook = ErrorFeedback::<f16>::default();
                let mut values = [65_504.0, -65_504.0, 1e6, -1e6, 0.5];
                hook.average(0, &mut values, &*group).unwrap();
                (values, hook.state(0).to_vec())
            });
            for (values, residual) in ranks {
                assert_eq!(values, [65_504.0, -65_504.0, f32::INFINITY, f32::NEG_INFINITY, 0.5], "{world}");
                assert_eq!(residual, [0.0; 5], "{world}");
            }
        }
    }

    /// A value from a single rank reaches the other ranks too.
    #[test]
    fn a_gradient_that_overflows_on_one_rank_is_infinite_on_all() {
        let ranks = on_ranks(2, |group| {
            let mut hook = ErrorFeedback::<f16>::default();
            let mut values = [if group.rank() == 1 { 200_000.0 } else { 0.0 }, 1.0];
            hook.average(0, &mut values, &*group).unwrap();
            values
        });
        assert_eq!(ranks, [[f32::INFINITY, 1.0]; 2]);
    }

    #[test]
    fn values_that_are_not_finite_stay_so_without_a_residual() {
        fn check<H: Half>()
        where
            [H]: HalfFloatSliceExt,
        {
            for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                let mut hook = ErrorFeedback::<H>::default();
                let mut values = [1.0, bad, -2.0];
                hook.average(0, &mut values, &SoloGroup::default()).unwrap();
                assert!(!values[1].is_finite() && values[0] == 1.0 && values[2] == -2.0, "{values:?}");
                assert_eq!(hook.state(0), [0.0; 3]);
            }
        }
        check::<bf16>();
        check::<f16>();
    }

    /// A residual has the units of the loss scale of its step.
    #[test]
    fn residuals_follow_the_loss_scale() {
        let group = SoloGroup::default();
        let [mut plain, mut halved] = [(); 2].map(|()| ErrorFeedback::<f16>::default());
        let scaled = |factor: f32| gradients(50, 3).into_iter().map(|g| g * factor).collect::<Vec<f32>>();
        for hook in [&mut plain, &mut halved] {
            hook.average(0, &mut scaled(1024.0), &group).unwrap();
        }
        halved.rescale(0.5);
        let (mut a, mut b) = (scaled(1024.0), scaled(512.0));
        plain.average(0, &mut a, &group).unwrap();
        halved.average(0, &mut b, &group).unwrap();
        assert!(plain.state(0).iter().any(|e| *e != 0.0), "nothing was owed");
        assert_eq!(a, b.iter().map(|g| g * 2.0).collect::<Vec<_>>());
    }

    /// The largest f32 rounds to infinity in bf16.
    #[test]
    fn the_largest_f32_leaves_no_infinite_residual() {
        let ranks = on_ranks(2, |group| {
            let mut hook = ErrorFeedback::<bf16>::default();
            hook.average(0, &mut [f32::MAX, 1.0], &*group).unwrap();
            hook.state(0).to_vec()
        });
        assert_eq!(ranks, [[0.0, 0.0]; 2]);
    }
}
