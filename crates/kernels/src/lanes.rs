//! Sums and maxima in 16 lanes, which are combined in a fixed order: vector instructions of any width give the same bits.

pub(super) const LANES: usize = 16;

/// Sum of `term` of the elements of `inputs` at each index. The inputs have the same length.
#[inline(always)]
pub(super) fn sum<const N: usize>(inputs: [&[f32]; N], term: impl Fn([f32; N]) -> f32) -> f32 {
    fold(inputs, 0.0, term, |sum, x| sum + x)
}

/// Maximum of `start` and the elements of `x`. NaN is ignored.
#[inline(always)]
pub(super) fn largest(x: &[f32], start: f32) -> f32 {
    fold([x], start, |[x]| x, |max, x| if x > max { x } else { max })
}

#[inline(always)]
fn fold<const N: usize>(
    inputs: [&[f32]; N],
    start: f32,
    term: impl Fn([f32; N]) -> f32,
    f: impl Fn(f32, f32) -> f32,
) -> f32 {
    let len = inputs[0].len();
    // Arrays, so that the compiler sees that every index is inside and uses vectors.
    let inputs = inputs.map(|input| input[..len].as_chunks::<LANES>());
    let mut lanes = [start; LANES];
    for i in 0..len / LANES {
        let rows = inputs.map(|(rows, _)| &rows[i]);
        for (lane, folded) in lanes.iter_mut().enumerate() {
            *folded = f(*folded, term(rows.map(|row| row[lane])));
        }
    }
    for (i, folded) in lanes[..len % LANES].iter_mut().enumerate() {
        *folded = f(*folded, term(inputs.map(|(_, rest)| rest[i])));
    }
    let lanes: [f32; 8] = halve(lanes, &f);
    let lanes: [f32; 4] = halve(lanes, &f);
    let [a, b] = halve(lanes, &f);
    f(a, b)
}

#[inline(always)]
fn halve<const N: usize, const HALF: usize>(lanes: [f32; N], f: impl Fn(f32, f32) -> f32) -> [f32; HALF] {
    std::array::from_fn(|lane| f(lanes[lane], lanes[lane + HALF]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_elements_are_folded_once() {
        for n in [0, 1, 15, 16, 17, 31, 64, 100] {
            let numbers: Vec<f32> = (1..=n).map(|i| i as f32).collect();
            let product: f32 = numbers.iter().map(|x| x * x).sum();
            assert_eq!(sum([&numbers], |[x]| x), (n * (n + 1) / 2) as f32, "{n}");
            assert_eq!(sum([&numbers, &numbers], |[x, y]| x * y), product, "{n}");
            let shuffled: Vec<f32> = (0..n).map(|i| ((i * 7) % n) as f32).collect();
            assert_eq!(largest(&shuffled, -1.0), n as f32 - 1.0, "{n}");
        }
        assert_eq!(largest(&[1.0, f32::NAN, 0.5], 0.0), 1.0);
    }

    /// With any vectors, the bits are those of 16 sums that are added in halves.
    #[test]
    fn sums_are_in_the_documented_order() {
        let x: Vec<f32> = (0..93).map(|i| (i as f32).sin()).collect();
        let mut lanes = [0.0f32; 16];
        x.iter().enumerate().for_each(|(i, x)| lanes[i % 16] += x);
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|i| lanes[i] += lanes[i + half]);
        }
        assert_eq!(sum([&x], |[x]| x), lanes[0]);
    }
}
