//! Common parts of the optimizers as Burn tensor operations, the counterpart of [`kernels::fused`] and
//! [`clip`](super::clip) for tensors that stay on their device. No value is read back, because the host would wait for
//! the device: what depends on a value is a mask. Only operations that CubeCL can fuse are used, so that an
//! element-wise update becomes one kernel (it can't fuse `sign`, `powi` or boolean operators).
//!
//! Sums are f32 here and f64 on the host, and a GPU's compiler may fuse `a * b + c`: results agree with the host's to
//! a few ulps, not bit for bit.

use burn::tensor::Tensor;
use kernels::formula::{self, Value};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A tensor as the value that a [`Formula`](kernels::formula::Formula) computes with.
#[derive(Clone)]
pub(super) struct Whole<const D: usize>(pub Tensor<D>);

impl<const D: usize> Neg for Whole<D> {
    type Output = Self;

    fn neg(self) -> Self {
        Self(-self.0)
    }
}

/// Operations of two tensors, and of a tensor and a number.
macro_rules! operations {
    ($($trait:ident $method:ident $(with $number:ty)?),*) => {$(
        operations!(@ $trait $method $($number)?);
    )*};
    (@ $trait:ident $method:ident) => {
        impl<const D: usize> $trait for Whole<D> {
            type Output = Self;

            fn $method(self, other: Self) -> Self {
                Self($trait::$method(self.0, other.0))
            }
        }
    };
    (@ $trait:ident $method:ident $number:ty) => {
        impl<const D: usize> $trait<$number> for Whole<D> {
            type Output = Self;

            fn $method(self, other: $number) -> Self {
                Self($trait::$method(self.0, other))
            }
        }
    };
}

operations!(Add add, Sub sub, Mul mul, Div div, Add add with f32, Mul mul with f32, Div div with f32);

impl<const D: usize> Value for Whole<D> {
    fn sqrt(self) -> Self {
        Self(self.0.sqrt())
    }

    fn abs(self) -> Self {
        Self(self.0.abs())
    }

    fn max(self, other: Self) -> Self {
        Self(self.0.max_pair(other.0))
    }

    fn sign(self) -> Self {
        let (up, down) = (self.0.clone().greater_elem(0.0), self.0.clone().lower_elem(0.0));
        Self(self.0.mask_fill(up, 1.0).mask_fill(down, -1.0))
    }

    fn decayed(self, param: &Self, decay: f32) -> Self {
        Self(decayed(self.0, &param.0, decay))
    }
}

/// `grad + decay * param`: weight decay in the gradient.
pub(super) fn decayed<const D: usize>(grad: Tensor<D>, param: &Tensor<D>, decay: f32) -> Tensor<D> {
    if decay == 0.0 { grad } else { grad + param.clone() * decay }
}

/// `torch.lerp`, as [`formula::lerp`].
pub(super) fn lerp<const D: usize>(a: Tensor<D>, b: Tensor<D>, weight: f32) -> Tensor<D> {
    formula::lerp(Whole(a), Whole(b), weight).0
}

/// `(param, state) = f(param, grad * scale, state)`; returns the parameter. Tensors are passed by value, so that their
/// last reader may write in place.
///
/// Panics if the number of state tensors is not `N`: the caller passed another optimizer's state.
pub(super) fn for_all<const N: usize, F>(
    param: Tensor<1>,
    grad: Tensor<1>,
    scale: Tensor<1>,
    state: &mut [Tensor<1>],
    f: F,
) -> Tensor<1>
where
    F: FnOnce(Tensor<1>, Tensor<1>, [Tensor<1>; N]) -> (Tensor<1>, [Tensor<1>; N]),
{
    assert_eq!(state.len(), N, "optimizer state has the wrong number of tensors");
    // A placeholder for the slots; another handle of `scale` costs nothing.
    let before = std::array::from_fn(|slot| std::mem::replace(&mut state[slot], scale.clone()));
    let (param, after) = f(param, grad * scale, before);
    state.iter_mut().zip(after).for_each(|(slot, new)| *slot = new);
    param
}

/// `[1]`: the L2 norm of one tensor.
pub(super) fn norm(x: Tensor<1>) -> Tensor<1> {
    sum_of_squares(x).sqrt()
}

/// `[1]`: `ratio` where both norms are above zero, else `otherwise`. All `[1]`.
pub(super) fn ratio_or(ratio: Tensor<1>, norms: [Tensor<1>; 2], otherwise: f32) -> Tensor<1> {
    let [a, b] = norms;
    ratio.mask_fill(a.min_pair(b).lower_equal_elem(0.0), otherwise)
}

/// `[1]`: the L2 norm over all `gradients`, on their device.
///
/// Squares are summed in f32, so the norm is infinite not only for gradients that are not finite but also for finite
/// ones whose squares overflow (elements from about 1.8e19). Both count as not finite.
///
/// Panics if there are no gradients: they determine the device of the norm.
pub fn norm_on_device(gradients: &[Tensor<1>]) -> Tensor<1> {
    // Additions of `[1]` tensors, because these fuse into the reductions; `cat` and `sum` do not.
    let sums = gradients.iter().map(|gradient| sum_of_squares(gradient.clone()));
    sums.reduce(|a, b| a + b).expect("a model without parameters is not trained").sqrt()
}

/// `[1]`: the factor of every gradient that limits their norm to `max_norm`, `min(1, max_norm / (norm + 1e-6))`; 1
/// without a `max_norm`. Undefined if `norm` is not finite.
pub fn clip_on_device(norm: Tensor<1>, max_norm: Option<f64>) -> Tensor<1> {
    match max_norm {
        Some(max_norm) => ((norm + 1e-6).recip() * max_norm).clamp_max(1.0),
        None => norm.ones_like(),
    }
}

fn sum_of_squares(x: Tensor<1>) -> Tensor<1> {
    (x.clone() * x).sum()
}

#[cfg(test)]
mod tests {
    use super::super::{clip_coefficient, global_norm};
    use super::*;
    use burn::tensor::Device;

    fn tensor(values: &[f32]) -> Tensor<1> {
        Tensor::from_data(values, &Device::flex())
    }

    fn value(tensor: Tensor<1>) -> f32 {
        assert_eq!(tensor.dims(), [1]);
        tensor.into_scalar::<f32>()
    }

    #[test]
    fn norm_covers_all_tensors() {
        let a: Vec<f32> = (0..1037).map(|i| ((i * 7919) % 1009) as f32 * 0.37 - 100.0).collect();
        let b: Vec<f32> = (0..16).map(|i| 300.0 / (i + 1) as f32).collect();
        let (got, expected) =
            (value(norm_on_device(&[tensor(&a), tensor(&b)])), global_norm([&a[..], &b[..]]));
        assert!((f64::from(got) / expected - 1.0).abs() < 2e-6, "{got} {expected}");
    }

    #[test]
    fn norm_is_not_finite_when_an_element_is_not_or_a_square_overflows() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2e19] {
            let norm = value(norm_on_device(&[tensor(&[1.0, 2.0]), tensor(&[0.5, bad])]));
            assert!(!norm.is_finite(), "{bad} went unseen: {norm}");
        }
        assert!(value(norm_on_device(&[tensor(&[1e19, 1e19])])).is_finite());
    }

    #[test]
    fn clip_coefficient_matches_the_host() {
        for norm in [0.0f32, 0.5, 1.0, 4.0, 1e6] {
            let (got, expected) =
                (value(clip_on_device(tensor(&[norm]), Some(1.5))), clip_coefficient(norm.into(), 1.5));
            assert!((got / expected - 1.0).abs() < 3e-7, "norm {norm}: {got}, expected {expected}");
        }
        assert_eq!(value(clip_on_device(tensor(&[4.0]), None)), 1.0);
    }
}
