//! Dropout, whose mask is a function of a key and of each element's index: it depends neither on threads nor on the order
//! of calls, and the backward pass computes it again. Source of the numbers: Philox4x32-10 (Salmon et al., "Parallel Random
//! Numbers: As Easy as 1, 2, 3", 2011), which PyTorch uses on CUDA.

use super::tasks::{BLOCK, for_each};
use super::wide::wide;

/// Counters that are encrypted together.
const LANES: usize = 16;
/// Elements whose numbers these are: four of each counter.
const GROUP: usize = 4 * LANES;

/// Which elements are dropped.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mask {
    /// With it the element's number is encrypted: the same key drops the same elements.
    pub key: [u32; 2],
    /// That an element is dropped, in [0, 1).
    pub probability: f64,
}

/// `out = x * m / (1 - probability)`, where `m` is 0 with the probability, else 1. NaN and infinity stay visible: 0 times
/// either is NaN, as in PyTorch.
///
/// Panics if the lengths differ.
pub fn apply(mask: Mask, x: &[f32], out: &mut [f32], parallelism: usize) {
    assert_eq!(x.len(), out.len(), "lengths of a dropout");
    let tasks = out.chunks_mut(BLOCK).zip(x.chunks(BLOCK)).enumerate();
    for_each(parallelism, tasks, |(task, (out, x))| {
        let first = (task * BLOCK / 4) as u64;
        multiply(mask.key, first, (mask.probability * 2f64.powi(32)) as u32, mask.scale(), x, out);
    });
}

impl Mask {
    fn scale(&self) -> f32 {
        (1.0 / (1.0 - self.probability)) as f32
    }
}

wide! {
    /// Elements whose number is below `threshold` are dropped; `counter` is that of the first.
    fn multiply(key: [u32; 2], counter: u64, threshold: u32, scale: f32, x: &[f32], out: &mut [f32]) {
        for (group, (x, out)) in x.chunks(GROUP).zip(out.chunks_mut(GROUP)).enumerate() {
            let counters = std::array::from_fn(|lane| counter + (group * LANES + lane) as u64);
            let numbers = philox(counters, key);
            for ((out, &x), &number) in out.iter_mut().zip(x).zip(numbers.as_flattened()) {
                *out = x * if number < threshold { 0.0 } else { scale };
            }
        }
    }
}

/// The four numbers of each counter, whose upper half is 0.
#[inline(always)]
fn philox(counters: [u64; LANES], key: [u32; 2]) -> [[u32; LANES]; 4] {
    let mut words = [counters.map(|c| c as u32), counters.map(|c| (c >> 32) as u32), [0; LANES], [0; LANES]];
    encrypt(&mut words, key);
    words
}

#[inline(always)]
fn encrypt([a, b, c, d]: &mut [[u32; LANES]; 4], [mut left, mut right]: [u32; 2]) {
    for _ in 0..10 {
        for lane in 0..LANES {
            let first = u64::from(a[lane]) * 0xd251_1f53;
            let second = u64::from(c[lane]) * 0xcd9e_8d57;
            a[lane] = (second >> 32) as u32 ^ b[lane] ^ left;
            b[lane] = second as u32;
            c[lane] = (first >> 32) as u32 ^ d[lane] ^ right;
            d[lane] = first as u32;
        }
        left = left.wrapping_add(0x9e37_79b9);
        right = right.wrapping_add(0xbb67_ae85);
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{noise, same_bits_with_any_threads};
    use super::*;

    /// The known answers of the authors' library, Random123.
    #[test]
    fn numbers_are_philox() {
        let known = [
            ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
            ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
            (
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0],
                [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
            ),
        ];
        for (counter, key, expected) in known {
            let mut words = counter.map(|word| [word; LANES]);
            encrypt(&mut words, key);
            assert_eq!(words, expected.map(|word| [word; LANES]), "{counter:x?}");
        }
        let numbers = philox([0, 1, 1 << 32, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7], [3, 4]);
        for (lane, counter) in [(2, [0, 1, 0, 0]), (15, [7, 0, 0, 0])] {
            let mut alone = counter.map(|word| [word; LANES]);
            encrypt(&mut alone, [3, 4]);
            assert_eq!(numbers.map(|word| word[lane]), alone.map(|word| word[0]));
        }
    }

    #[test]
    fn elements_are_dropped_with_the_probability() {
        const LEN: usize = 100_000;
        for probability in [0.0, 0.1, 0.5, 0.9] {
            let mask = Mask { key: [1, 2], probability };
            let mut out = vec![f32::NAN; LEN];
            apply(mask, &vec![1.0; LEN], &mut out, 2);
            let dropped = out.iter().filter(|x| **x == 0.0).count();
            assert!(out.iter().all(|x| *x == 0.0 || *x == mask.scale()));
            // Four standard deviations.
            let allowed = 4.0 * (LEN as f64 * probability * (1.0 - probability)).sqrt();
            assert!(
                (dropped as f64 - LEN as f64 * probability).abs() <= allowed,
                "{dropped} at {probability}"
            );
            // Neighbours are independent.
            let pairs = out.windows(2).filter(|pair| pair == &[0.0, 0.0]).count();
            assert!((pairs as f64 - LEN as f64 * probability.powi(2)).abs() <= 2.0 * allowed, "{pairs}");
        }
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        let x = noise(3 * BLOCK + 77, 1);
        same_bits_with_any_threads(|parallelism| {
            let mut out = vec![f32::NAN; x.len()];
            apply(Mask { key: [7, 9], probability: 0.3 }, &x, &mut out, parallelism);
            vec![out]
        });
    }

    /// No block repeats the numbers of another one.
    #[test]
    fn each_element_has_a_number_of_its_own() {
        let ones = vec![1.0; 4 * BLOCK];
        let mut out = vec![0.0; ones.len()];
        apply(Mask { key: [7, 9], probability: 0.5 }, &ones, &mut out, 1);
        let groups: std::collections::BTreeSet<Vec<u32>> =
            out.chunks(GROUP).map(|group| group.iter().map(|x| x.to_bits()).collect()).collect();
        assert_eq!(groups.len(), ones.len() / GROUP);
    }

    #[test]
    fn what_is_not_finite_stays_visible() {
        let mut out = [0.0; 200];
        apply(Mask { key: [1, 1], probability: 0.9 }, &[f32::INFINITY; 200], &mut out, 1);
        assert!(out.iter().all(|x| !x.is_finite()));
    }
}
