//! Formulas of element-wise optimizers: the new value of an element depends only on that element, its gradient and its
//! state. Each runs over host slices in one pass ([`fused`](crate::fused)) and, as operations on whole tensors, on
//! devices: the same f32 operations in the same order. [`crate::formulas`] has them.

use std::ops::{Add, Div, Mul, Neg, Sub};

/// What a formula computes with: one element on the host, or a whole tensor on a device.
pub trait Value:
    Clone
    + Neg<Output = Self>
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f32, Output = Self>
    + Mul<f32, Output = Self>
    + Div<f32, Output = Self>
{
    /// The square root of each element.
    fn sqrt(self) -> Self;
    /// The magnitude of each element.
    fn abs(self) -> Self;
    /// The larger of both, element by element.
    fn max(self, other: Self) -> Self;
    /// 1, -1, or 0 at zero.
    fn sign(self) -> Self;
    /// `self + decay * param`: weight decay in the gradient.
    fn decayed(self, param: &Self, decay: f32) -> Self;
}

impl Value for f32 {
    #[inline(always)]
    fn sqrt(self) -> Self {
        self.sqrt()
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.abs()
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        if other > self { other } else { self }
    }

    #[inline(always)]
    fn sign(self) -> Self {
        // Not `signum`, which is ±1 at ±0: a parameter without a gradient must not change.
        if self > 0.0 {
            1.0
        } else if self < 0.0 {
            -1.0
        } else {
            0.0
        }
    }

    #[inline(always)]
    fn decayed(self, param: &Self, decay: f32) -> Self {
        self + decay * param
    }
}

/// `torch.lerp`: `a + weight * (b - a)`, with PyTorch's order of operations on either side of one half.
#[inline(always)]
pub fn lerp<V: Value>(a: V, b: V, weight: f32) -> V {
    let between = b.clone() - a.clone();
    if weight < 0.5 { a + between * weight } else { b - between * (1.0 - weight) }
}

/// `average * keep + take * x * x`: updates a moving average of squares.
#[inline(always)]
pub fn add_square<V: Value>(average: V, x: V, keep: f32, take: f32) -> V {
    average * keep + x.clone() * take * x
}

/// One step of an optimizer with `N` state tensors.
pub trait Formula<const N: usize>: Copy + Sync {
    /// The new parameter and state. The gradient is already scaled. On the host, called once per element in a
    /// vectorised loop: implementations are `#[inline(always)]`.
    fn apply<V: Value>(self, param: V, grad: V, state: [V; N]) -> (V, [V; N]);

    /// The same over slices in place, with `scale` multiplied to the gradient. Each formula has one of its own
    /// (`over_slices!`), which is compiled with this crate: a provided one would be compiled where it is called, without
    /// optimisation in a development build.
    ///
    /// Panics if the lengths differ: the caller sized the state wrongly.
    fn run(self, scale: f32, param: &mut [f32], grad: &[f32], state: [&mut [f32]; N]);
}

/// [`Formula::run`] of a formula with this many state tensors.
macro_rules! over_slices {
    ($states:literal) => {
        fn run(self, scale: f32, param: &mut [f32], grad: &[f32], state: [&mut [f32]; $states]) {
            crate::fused::for_each(param, grad, state, |p, g, state| {
                $crate::formula::Formula::<$states>::apply(self, p, g * scale, state)
            });
        }
    };
}

pub(crate) use over_slices;

/// Weight decay and the two moments of Adam and its relatives.
#[derive(Clone, Copy)]
pub struct Moments {
    shrink: f32,
    l2: f32,
    take1: f32,
    keep2: f32,
    take2: f32,
}

impl Moments {
    /// `decoupled`: weight decay shrinks the parameter directly instead of adding to the gradient.
    pub fn new([beta1, beta2]: [f64; 2], lr: f64, decay: f64, decoupled: bool) -> Self {
        let (shrink, l2) = if decoupled { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
        Self { shrink, l2, take1: (1.0 - beta1) as f32, keep2: beta2 as f32, take2: (1.0 - beta2) as f32 }
    }

    /// Parameter and gradient after weight decay, and the new moments.
    #[inline(always)]
    pub fn update<V: Value>(self, p: V, g: V, [m, v]: [V; 2]) -> (V, V, [V; 2]) {
        let p = p * self.shrink;
        let g = g.decayed(&p, self.l2);
        let m = lerp(m, g.clone(), self.take1);
        let v = add_square(v, g.clone(), self.keep2, self.take2);
        (p, g, [m, v])
    }
}
