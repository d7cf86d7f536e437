//! The element-wise arithmetic of collective reductions. Plain loops, which LLVM vectorises; the order of operands is
//! fixed, so that equal inputs give equal bits on every rank.
//!
//! Semantics are PyTorch's: integers wrap, NaN wins in max and min, a mean is the sum divided (not multiplied by a
//! reciprocal, so world sizes that are powers of two stay exact). f16 and bf16 are combined in f32 and rounded once per
//! call, of two operands or of all; a mean is divided before that rounding.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// How elements at the same position become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Integers wrap.
    Sum,
    /// NaN wins.
    Max,
    /// NaN wins.
    Min,
}

/// The operands of one result, in order: what returns each, and how many there are (at least two). A function of a type
/// that the caller chooses would have its loops compiled with the caller.
pub type Operands<'f, 'x, T> = (&'f dyn Fn(usize) -> &'x [T], usize);

/// An element type of reductions. All slices of a call have one length. A divisor applies to sums of floats.
pub trait Reduce: Copy {
    /// `acc = acc op x`, divided by `divisor`.
    fn combine(op: Operation, acc: &mut [Self], x: &[Self], divisor: Option<usize>);
    /// All operands combined in order into `out`, and divided by `divisor`.
    fn combine_all(op: Operation, out: &mut [Self], operands: Operands<'_, '_, Self>, divisor: Option<usize>);
}

macro_rules! floats {
    ($($t:ty),*) => {$(impl Reduce for $t {
        fn combine(op: Operation, acc: &mut [Self], x: &[Self], divisor: Option<usize>) {
            float(op, acc, x, divisor.map(|d| d as $t));
        }
        fn combine_all(op: Operation, out: &mut [Self], (operand, count): Operands<'_, '_, Self>, divisor: Option<usize>) {
            let last = |index| divisor.filter(|_| index + 1 == count);
            let (a, b) = (operand(0), operand(1));
            // Sums, which gradients use, save the pass of copying the first operand.
            match (op, last(1)) {
                (Operation::Sum, Some(d)) => zip_into(out, a, b, |a, b| (a + b) / d as $t),
                (Operation::Sum, None) => zip_into(out, a, b, |a, b| a + b),
                (Operation::Max | Operation::Min, _) => {
                    out.copy_from_slice(a);
                    Self::combine(op, out, b, None);
                }
            }
            (2..count).for_each(|index| Self::combine(op, out, operand(index), last(index)));
        }
    })*};
}
floats!(f32, f64);

macro_rules! integers {
    ($($t:ty),*) => {$(impl Reduce for $t {
        fn combine(op: Operation, acc: &mut [Self], x: &[Self], _: Option<usize>) {
            match op {
                Operation::Sum => zip(acc, x, <$t>::wrapping_add),
                Operation::Max => zip(acc, x, <$t>::max),
                Operation::Min => zip(acc, x, <$t>::min),
            }
        }
        fn combine_all(op: Operation, out: &mut [Self], (operand, count): Operands<'_, '_, Self>, _: Option<usize>) {
            out.copy_from_slice(operand(0));
            (1..count).for_each(|index| Self::combine(op, out, operand(index), None));
        }
    })*};
}
integers!(i32, i64, u8);

macro_rules! halves {
    ($($t:ty),*) => {$(impl Reduce for $t {
        fn combine(op: Operation, acc: &mut [Self], x: &[Self], divisor: Option<usize>) {
            let (mut wide_acc, mut wide_x) = ([0f32; WIDE], [0f32; WIDE]);
            for (acc, x) in acc.chunks_mut(WIDE).zip(x.chunks(WIDE)) {
                let (wide_acc, wide_x) = (&mut wide_acc[..acc.len()], &mut wide_x[..x.len()]);
                acc.convert_to_f32_slice(wide_acc);
                x.convert_to_f32_slice(wide_x);
                f32::combine(op, wide_acc, wide_x, divisor);
                acc.convert_from_f32_slice(wide_acc);
            }
        }
        fn combine_all(op: Operation, out: &mut [Self], (operand, count): Operands<'_, '_, Self>, divisor: Option<usize>) {
            let (mut wide_acc, mut wide_x) = ([0f32; WIDE], [0f32; WIDE]);
            for start in (0..out.len()).step_by(WIDE) {
                let range = start..(start + WIDE).min(out.len());
                let (acc, x) = (&mut wide_acc[..range.len()], &mut wide_x[..range.len()]);
                operand(0)[range.clone()].convert_to_f32_slice(acc);
                for index in 1..count {
                    operand(index)[range.clone()].convert_to_f32_slice(x);
                    f32::combine(op, acc, x, divisor.filter(|_| index + 1 == count));
                }
                out[range].convert_from_f32_slice(acc);
            }
        }
    })*};
}
halves!(f16, bf16);

/// Elements widened to f32 on the stack at a time: half's slice conversions use the CPU's instructions; conversions of
/// single elements would test for them at every element.
const WIDE: usize = 128;

fn zip<T: Copy>(acc: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
    debug_assert_eq!(acc.len(), x.len());
    for (a, &b) in acc.iter_mut().zip(x) {
        *a = f(*a, b);
    }
}

fn zip_into<T: Copy>(out: &mut [T], a: &[T], b: &[T], f: impl Fn(T, T) -> T) {
    debug_assert_eq!([out.len(); 2], [a.len(), b.len()]);
    for (o, (&a, &b)) in out.iter_mut().zip(a.iter().zip(b)) {
        *o = f(a, b);
    }
}

trait Float: Copy + PartialOrd + std::ops::Add<Output = Self> + std::ops::Div<Output = Self> {}
impl Float for f32 {}
impl Float for f64 {}

/// `a != a` tests for NaN and keeps the loop a compare and a blend.
#[allow(clippy::eq_op)]
fn max<T: Float>(a: T, b: T) -> T {
    if a > b || a != a { a } else { b }
}

#[allow(clippy::eq_op)]
fn min<T: Float>(a: T, b: T) -> T {
    if a < b || a != a { a } else { b }
}

fn float<T: Float>(op: Operation, acc: &mut [T], x: &[T], divisor: Option<T>) {
    match (op, divisor) {
        (Operation::Sum, Some(d)) => zip(acc, x, |a, b| (a + b) / d),
        (Operation::Sum, None) => zip(acc, x, |a, b| a + b),
        (Operation::Max, _) => zip(acc, x, max),
        (Operation::Min, _) => zip(acc, x, min),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Operation; 3] = [Operation::Sum, Operation::Max, Operation::Min];

    fn combine<T: Reduce>(op: Operation, a: &[T], b: &[T], divisor: Option<usize>) -> Vec<T> {
        let mut acc = a.to_vec();
        T::combine(op, &mut acc, b, divisor);
        acc
    }

    fn combine_all<T: Reduce>(op: Operation, operands: &[Vec<T>], divisor: Option<usize>) -> Vec<T> {
        // Nothing of it may be left.
        let mut out = operands.last().unwrap().clone();
        T::combine_all(op, &mut out, (&|i| &operands[i], operands.len()), divisor);
        out
    }

    #[test]
    fn nan_wins_in_max_and_min_on_either_side() {
        for op in [Operation::Max, Operation::Min] {
            let out = combine(op, &[f32::NAN, 1.0], &[1.0, f32::NAN], None);
            assert!(out.iter().all(|v| v.is_nan()), "{op:?}: {out:?}");
            let out = combine(op, &[f16::NAN, f16::ONE], &[f16::ONE, f16::NAN], None);
            assert!(out.iter().all(|v| v.is_nan()), "{op:?}: {out:?}");
        }
        assert_eq!(combine(Operation::Max, &[1.0f64, -2.0], &[0.5, 3.0], None), [1.0, 3.0]);
        assert_eq!(combine(Operation::Min, &[1.0f64, -2.0], &[0.5, 3.0], None), [0.5, -2.0]);
    }

    #[test]
    fn integers_wrap_and_are_not_divided() {
        assert_eq!(combine(Operation::Sum, &[i32::MAX, 1], &[1, 2], None), [i32::MIN, 3]);
        assert_eq!(combine(Operation::Sum, &[250u8], &[10], Some(2)), [4]);
        assert_eq!(combine(Operation::Max, &[-1i64, 5], &[0, 4], None), [0, 5]);
        assert_eq!(combine(Operation::Min, &[-1i64, 5], &[0, 4], None), [-1, 4]);
        assert_eq!(combine_all(Operation::Sum, &[vec![250u8], vec![10], vec![3]], Some(3)), [7]);
    }

    #[test]
    fn a_mean_divides_once_and_exactly() {
        assert_eq!(combine(Operation::Sum, &[0.1f32], &[0.1], Some(2)), [0.1]);
        assert_eq!(combine(Operation::Sum, &[1.0f32], &[0.0], Some(3)), [1.0 / 3.0]);
        assert_eq!(combine(Operation::Sum, &[1.0f32], &[2.0], None), [3.0]);
        // The sum alone would overflow f16; the mean does not.
        let big = f16::from_f32(60000.0);
        assert_eq!(combine(Operation::Sum, &[big], &[big], Some(2)), [big]);
        // The other operations ignore a divisor.
        assert_eq!(combine(Operation::Max, &[1.0f32], &[2.0], Some(2)), [2.0]);
        assert_eq!(combine_all(Operation::Min, &[vec![1.0f64], vec![2.0]], Some(2)), [1.0]);
    }

    #[test]
    fn out_of_place_is_the_same_bits_as_in_place() {
        let operands: Vec<Vec<f32>> =
            (1..=3).map(|k| (0..1001).map(|i| (i as f32 * 0.7 * k as f32).sin() * 1e3).collect()).collect();
        for (op, divisor) in ALL.into_iter().flat_map(|op| [(op, None), (op, Some(3))]) {
            let in_place = |count: usize| {
                let mut acc = operands[0].clone();
                for (index, x) in operands[..count].iter().enumerate().skip(1) {
                    f32::combine(op, &mut acc, x, divisor.filter(|_| index + 1 == count));
                }
                acc
            };
            for count in [2, 3] {
                assert_eq!(
                    combine_all(op, &operands[..count], divisor),
                    in_place(count),
                    "{op:?} {divisor:?}"
                );
            }
        }
    }

    #[test]
    fn many_halves_are_rounded_once() {
        // 256 + 1 is 256 in bf16, so adding one by one would stay there.
        let values = [256.0f32, 1.0, 1.0, 1.0, 1.0].map(|v| vec![bf16::from_f32(v); 300]);
        for (op, divisor, want) in
            [(Operation::Sum, None, 260.0), (Operation::Sum, Some(5), 52.0), (Operation::Max, None, 256.0)]
        {
            assert_eq!(combine_all(op, &values, divisor), vec![bf16::from_f32(want); 300], "{op:?}");
        }
    }

    #[test]
    fn half_types_round_once_from_f32_at_every_length() {
        for n in [0, 1, 7, 127, 128, 129, 300] {
            let a: Vec<bf16> = (0..n).map(|i| bf16::from_f32(i as f32 * 0.37)).collect();
            let b: Vec<bf16> = (0..n).map(|i| bf16::from_f32(1.0 + i as f32 * 0.11)).collect();
            let want: Vec<bf16> =
                a.iter().zip(&b).map(|(a, b)| bf16::from_f32(a.to_f32() + b.to_f32())).collect();
            assert_eq!(combine(Operation::Sum, &a, &b, None), want, "n = {n}");
        }
    }
}
