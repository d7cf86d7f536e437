//! Element-wise optimizers: the new value of an element depends only on that element, its gradient and its state. Each
//! has one [`Formula`], which runs over host slices in one pass ([`simd`](super::simd)) and as tensor operations on a
//! device ([`device`](super::device)): the same f32 operations in the same order.

use burn::tensor::Tensor;
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
    fn sqrt(self) -> Self;
    fn abs(self) -> Self;
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

impl<const D: usize> Value for Tensor<D> {
    fn sqrt(self) -> Self {
        self.sqrt()
    }

    fn abs(self) -> Self {
        self.abs()
    }

    fn max(self, other: Self) -> Self {
        self.max_pair(other)
    }

    fn sign(self) -> Self {
        let (up, down) = (self.clone().greater_elem(0.0), self.clone().lower_elem(0.0));
        self.mask_fill(up, 1.0).mask_fill(down, -1.0)
    }

    fn decayed(self, param: &Self, decay: f32) -> Self {
        if decay == 0.0 { self } else { self + param.clone() * decay }
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
}

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
