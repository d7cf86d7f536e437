//! The L2 norm over several slices, as in `torch.nn.utils.clip_grad_norm_`.
//!
//! Squares are summed in f64 over a fixed number of lanes, in blocks of a fixed size, so the result depends only on the
//! order of the slices, not on the CPU or on threads. Squares of finite f32 values cannot overflow an f64 sum and nothing
//! can cancel, so **the norm is finite exactly when every element is**: checking that needs no separate pass.

use crate::tasks;
use crate::wide::wide;

/// Parallel sums; also the width of the vectorised loop.
const LANES: usize = 16;

/// Elements of a task: those of the optimizer's, so that its threads find them in their caches.
const BLOCK: usize = crate::fused::TASK;

/// A running sum of squares.
#[derive(Clone, Debug, Default)]
pub struct SumOfSquares {
    lanes: [f64; LANES],
}

impl SumOfSquares {
    /// Adds the squares of `values`. Splitting a slice differently may change the last bit.
    pub fn add(&mut self, values: &[f32]) {
        add_squares(&mut self.lanes, values);
    }

    fn merge(&mut self, other: &Self) {
        self.lanes.iter_mut().zip(other.lanes).for_each(|(sum, other)| *sum += other);
    }

    /// The L2 norm of all values added. Finite exactly when all of them are.
    pub fn norm(&self) -> f64 {
        self.lanes.iter().sum::<f64>().sqrt()
    }
}

wide! {
    fn add_squares(lanes: &mut [f64; LANES], values: &[f32]) {
        let mut sums = *lanes;
        let (blocks, rest) = values.as_chunks::<LANES>();
        for block in blocks {
            for (sum, &x) in sums.iter_mut().zip(block) {
                *sum += f64::from(x) * f64::from(x);
            }
        }
        for (sum, &x) in sums.iter_mut().zip(rest) {
            *sum += f64::from(x) * f64::from(x);
        }
        *lanes = sums;
    }
}

/// The L2 norm over all `slices`, in order. Finite exactly when all elements are.
pub fn global_norm<'a>(slices: impl IntoIterator<Item = &'a [f32]>) -> f64 {
    let mut total = SumOfSquares::default();
    for slice in slices {
        if slice.len() <= BLOCK {
            total.add(slice);
            continue;
        }
        let mut sums = vec![SumOfSquares::default(); slice.len().div_ceil(BLOCK)];
        let blocks = sums.iter_mut().zip(slice.chunks(BLOCK));
        tasks::for_each(rayon::current_num_threads(), blocks, |(sum, block)| sum.add(block));
        sums.iter().for_each(|sum| total.merge(sum));
    }
    total.norm()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_covers_all_slices() {
        let a: Vec<f32> = (0..37).map(|i| i as f32 * 0.25 - 3.0).collect();
        let b: Vec<f32> = (0..16).map(|i| 1.0 / (i + 1) as f32).collect();
        let plain = a.iter().chain(&b).map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        let norm = global_norm([&a[..], &[], &b[..]]);
        assert!((norm - plain).abs() < 1e-12, "{norm} {plain}");
    }

    #[test]
    fn norm_does_not_depend_on_threads() {
        let values: Vec<f32> =
            (0..3 * BLOCK + 7).map(|i| ((i * 7919) % 1009) as f32 * 0.0137 - 6.5).collect();
        let slices = || [&values[..], &values[5..BLOCK], &values[9..BLOCK + 10]];
        let plain = slices().concat().iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| global_norm(slices()))
        };
        assert!((on(1) - plain).abs() < 1e-12 * plain, "{} {plain}", on(1));
        for threads in [2, 3, 8] {
            assert_eq!(on(threads).to_bits(), on(1).to_bits());
        }
    }

    #[test]
    fn norm_is_finite_exactly_when_every_element_is() {
        let mut values = vec![f32::MAX; 1000];
        assert!(global_norm([&values[..]]).is_finite());
        for (at, bad) in [(0, f32::NAN), (999, f32::INFINITY), (500, f32::NEG_INFINITY)] {
            let old = std::mem::replace(&mut values[at], bad);
            assert!(!global_norm([&values[..]]).is_finite(), "{bad} at {at} went unseen");
            values[at] = old;
        }
    }
}
