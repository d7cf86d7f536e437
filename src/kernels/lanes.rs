//! Sums and maxima in 16 lanes, which are combined in a fixed order: vector instructions of any width give the same bits.

const LANES: usize = 16;

/// Sum of `term(i)` for `i < n`.
#[inline(always)]
pub(super) fn sum(n: usize, term: impl Fn(usize) -> f32) -> f32 {
    fold(n, 0.0, term, |sum, x| sum + x)
}

/// Maximum of `start` and `term(i)` for `i < n`. NaN is ignored.
#[inline(always)]
pub(super) fn largest(n: usize, start: f32, term: impl Fn(usize) -> f32) -> f32 {
    fold(n, start, term, |max, x| if x > max { x } else { max })
}

#[inline(always)]
fn fold(n: usize, start: f32, term: impl Fn(usize) -> f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let whole = n / LANES * LANES;
    let mut i = 0;
    while i < whole {
        for (lane, folded) in lanes.iter_mut().enumerate() {
            *folded = f(*folded, term(i + lane));
        }
        i += LANES;
    }
    for (folded, i) in lanes.iter_mut().zip(whole..n) {
        *folded = f(*folded, term(i));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = f(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_are_folded_once() {
        for n in [0, 1, 15, 16, 17, 31, 64, 100] {
            assert_eq!(sum(n, |i| (i + 1) as f32), (n * (n + 1) / 2) as f32, "{n}");
            assert_eq!(largest(n, -1.0, |i| ((i * 7) % n.max(1)) as f32), n as f32 - 1.0, "{n}");
        }
        assert_eq!(largest(3, 0.0, |i| [1.0, f32::NAN, 0.5][i]), 1.0);
    }
}
