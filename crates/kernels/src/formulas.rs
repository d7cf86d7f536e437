//! The formulas of the element-wise optimizers. Each holds the factors that are the same for all elements of a step:
//! * `lr`, `eps`, `momentum`: as the optimizer's keys; `size`: a learning rate with other factors in it;
//! * `decay`: weight decay in the gradient; `shrink`, `before`, `after`: factors of the parameter instead;
//! * `keep`, `take`: what a moving average keeps of itself, and takes of the new value;
//! * `bc1`, `bc2`, `root`, `correction`: bias corrections.

#![allow(missing_docs, reason = "fields are described above")]

use crate::formula::{Formula, Moments, Value, add_square, lerp, over_slices};
use crate::fused;

/// Moves a running average to the values: by `share` of the way.
pub fn average(average: &mut [f32], values: &[f32], share: f32) {
    fused::for_each(average, values, [], |average, value, []| (lerp(average, value, share), []));
}

/// Gradient descent, without (0) or with (1) a momentum buffer.
#[derive(Clone, Copy)]
pub struct Sgd {
    pub lr: f32,
    pub decay: f32,
    /// Of the momentum buffer, and of the gradient added to it.
    pub keep: f32,
    pub take: f32,
    /// The momentum, with Nesterov's.
    pub nesterov: Option<f32>,
}

impl Formula<0> for Sgd {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, []: [V; 0]) -> (V, [V; 0]) {
        let g = g.decayed(&p, self.decay);
        (p - g * self.lr, [])
    }

    over_slices!(0);
}

impl Formula<1> for Sgd {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m]: [V; 1]) -> (V, [V; 1]) {
        let g = g.decayed(&p, self.decay);
        let m = m * self.keep + g.clone() * self.take;
        let direction = match self.nesterov {
            Some(momentum) => g + m.clone() * momentum,
            None => m.clone(),
        };
        (p - direction * self.lr, [m])
    }

    over_slices!(1);
}

/// Adam and AdamW; with three state tensors, AMSGrad.
#[derive(Clone, Copy)]
pub struct Adam {
    pub moments: Moments,
    pub size: f32,
    pub root: f32,
    pub eps: f32,
}

impl Formula<2> for Adam {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, moments: [V; 2]) -> (V, [V; 2]) {
        let (p, _, [m, v]) = self.moments.update(p, g, moments);
        (p - m.clone() * self.size / (v.clone().sqrt() / self.root + self.eps), [m, v])
    }

    over_slices!(2);
}

/// AMSGrad.
impl Formula<3> for Adam {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m, v, top]: [V; 3]) -> (V, [V; 3]) {
        let (p, _, [m, v]) = self.moments.update(p, g, [m, v]);
        let top = top.max(v.clone());
        (p - m.clone() * self.size / (top.clone().sqrt() / self.root + self.eps), [m, v, top])
    }

    over_slices!(3);
}

/// RMSprop.
#[derive(Clone, Copy)]
pub struct RmsProp {
    pub lr: f32,
    pub decay: f32,
    pub eps: f32,
    pub keep: f32,
    pub take: f32,
    pub momentum: Option<f32>,
    pub centered: bool,
}

impl RmsProp {
    /// The state: the average of squares, the momentum buffer if there is one, the average of gradients if
    /// centred.
    #[inline(always)]
    fn step<const N: usize, V: Value>(self, p: V, g: V, mut state: [V; N]) -> (V, [V; N]) {
        let g = g.decayed(&p, self.decay);
        state[0] = add_square(state[0].clone(), g.clone(), self.keep, self.take);
        let mut variance = state[0].clone();
        if self.centered {
            let average = lerp(state[N - 1].clone(), g.clone(), self.take);
            state[N - 1] = average.clone();
            variance = variance - average.clone() * average;
        }
        let denom = variance.sqrt() + self.eps;
        let Some(momentum) = self.momentum else { return (p - g * self.lr / denom, state) };
        state[1] = state[1].clone() * momentum + g / denom;
        (p - state[1].clone() * self.lr, state)
    }
}

macro_rules! rmsprop {
    ($($states:literal)*) => {$(
        impl Formula<$states> for RmsProp {
            #[inline(always)]
            fn apply<V: Value>(self, p: V, g: V, state: [V; $states]) -> (V, [V; $states]) {
                self.step(p, g, state)
            }

            over_slices!($states);
        }
    )*};
}

rmsprop!(1 2 3);

/// Adagrad.
#[derive(Clone, Copy)]
pub struct Adagrad {
    pub decay: f32,
    pub size: f32,
    pub initial: f32,
    pub eps: f32,
}

impl Formula<1> for Adagrad {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [sum]: [V; 1]) -> (V, [V; 1]) {
        let g = g.decayed(&p, self.decay);
        let sum = (sum + self.initial) + g.clone() * g.clone();
        (p - g * self.size / (sum.clone().sqrt() + self.eps), [sum])
    }

    over_slices!(1);
}

/// Adadelta.
#[derive(Clone, Copy)]
pub struct Adadelta {
    pub lr: f32,
    pub decay: f32,
    pub keep: f32,
    pub take: f32,
    pub eps: f32,
}

impl Formula<2> for Adadelta {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [square, acc]: [V; 2]) -> (V, [V; 2]) {
        let Self { lr, decay, keep, take, eps } = self;
        let g = g.decayed(&p, decay);
        let square = add_square(square, g.clone(), keep, take);
        let delta = (acc.clone() + eps).sqrt() / (square.clone() + eps).sqrt() * g;
        let acc = add_square(acc, delta.clone(), keep, take);
        (p - delta * lr, [square, acc])
    }

    over_slices!(2);
}

/// Adamax.
#[derive(Clone, Copy)]
pub struct Adamax {
    pub decay: f32,
    pub take1: f32,
    pub keep2: f32,
    pub size: f32,
    pub eps: f32,
}

impl Formula<2> for Adamax {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m, top]: [V; 2]) -> (V, [V; 2]) {
        let g = g.decayed(&p, self.decay);
        let m = lerp(m, g.clone(), self.take1);
        let top = (top * self.keep2).max(g.abs() + self.eps);
        (p - m.clone() * self.size / top.clone(), [m, top])
    }

    over_slices!(2);
}

/// NAdam.
#[derive(Clone, Copy)]
pub struct NAdam {
    pub moments: Moments,
    pub by_grad: f32,
    pub by_avg: f32,
    pub correction: f32,
    pub eps: f32,
}

impl Formula<2> for NAdam {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, moments: [V; 2]) -> (V, [V; 2]) {
        let (p, g, [m, v]) = self.moments.update(p, g, moments);
        let denom = (v.clone() / self.correction).sqrt() + self.eps;
        let p = p - g * self.by_grad / denom.clone();
        (p - m.clone() * self.by_avg / denom, [m, v])
    }

    over_slices!(2);
}

/// RAdam.
#[derive(Clone, Copy)]
pub struct RAdam {
    pub moments: Moments,
    pub size: f32,
    /// Whether the update is divided by the root of the variance.
    pub rectified: bool,
    pub eps: f32,
}

impl Formula<2> for RAdam {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, moments: [V; 2]) -> (V, [V; 2]) {
        let (p, _, [m, v]) = self.moments.update(p, g, moments);
        let direction = m.clone() * self.size;
        let direction = if self.rectified { direction / (v.clone().sqrt() + self.eps) } else { direction };
        (p - direction, [m, v])
    }

    over_slices!(2);
}

/// Lion.
#[derive(Clone, Copy)]
pub struct Lion {
    pub lr: f32,
    pub shrink: f32,
    pub keep: [f32; 2],
    pub take: [f32; 2],
}

impl Formula<1> for Lion {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m]: [V; 1]) -> (V, [V; 1]) {
        let Self { lr, shrink, keep, take } = self;
        let direction = m.clone() * keep[0] + g.clone() * take[0];
        (p * shrink - direction.sign() * lr, [m * keep[1] + g * take[1]])
    }

    over_slices!(1);
}

/// Adan.
#[derive(Clone, Copy)]
pub struct Adan {
    pub before: f32,
    pub after: f32,
    pub lr: f32,
    pub keep: [f32; 3],
    pub take: [f32; 3],
    pub bc1: f32,
    pub bc2: f32,
    pub root: f32,
    pub eps: f32,
    pub differs: f32,
}

impl Formula<4> for Adan {
    #[inline(always)]
    fn apply<V: Value>(self, p: V, g: V, [m, v, d, previous]: [V; 4]) -> (V, [V; 4]) {
        let Self { before, after, lr, keep, take, bc1, bc2, root, eps, differs } = self;
        let diff = (g.clone() + previous) * differs;
        let look = g.clone() + diff.clone() * keep[1];
        let m = m * keep[0] + g.clone() * take[0];
        let d = d * keep[1] + diff * take[1];
        let v = add_square(v, look, keep[2], take[2]);
        let denom = v.clone().sqrt() / root + eps;
        let delta = m.clone() / bc1 / denom.clone() + d.clone() * keep[1] / bc2 / denom;
        ((p * before - delta * lr) / after, [m, v, d, -g])
    }

    over_slices!(4);
}
