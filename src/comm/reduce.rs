//! The element-wise arithmetic of reductions: `acc = acc op x` over byte buffers of one dtype. Plain loops over exact
//! chunks, which LLVM vectorises; the operand order is fixed, so that equal inputs give equal bits on every rank.
//!
//! Semantics are PyTorch's: integers wrap, NaN wins in max and min, a mean is the sum divided (not multiplied by a
//! reciprocal, so world sizes that are powers of two stay exact). f16 and bf16 are combined in f32 and rounded once per
//! combination (of all ranks' operands in shared memory, of two at a time over links); a mean is divided before that
//! rounding.

use super::{DType, ReduceOp};
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// The element type, and how elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub dtype: DType,
    pub op: ReduceOp,
}

/// Combines `x` into `acc` (equal lengths, whole aligned elements of the type). `divisor` is passed with the last
/// contribution of a `Mean`; without it, a `Mean` only sums.
pub(super) fn combine(over: Reduction, acc: &mut [u8], x: &[u8], divisor: Option<usize>) {
    debug_assert_eq!(acc.len(), x.len());
    let Reduction { dtype, op } = over;
    let divisor = divisor.filter(|_| op == ReduceOp::Mean);
    match dtype {
        DType::F32 => float(op, cast(acc), bytemuck::cast_slice(x), divisor.map(|d| d as f32)),
        DType::F64 => float(op, cast(acc), bytemuck::cast_slice(x), divisor.map(|d| d as f64)),
        DType::F16 => half::<f16>(op, cast(acc), bytemuck::cast_slice(x), divisor),
        DType::BF16 => half::<bf16>(op, cast(acc), bytemuck::cast_slice(x), divisor),
        DType::I32 => integer(op, cast::<i32>(acc), bytemuck::cast_slice(x), i32::wrapping_add),
        DType::I64 => integer(op, cast::<i64>(acc), bytemuck::cast_slice(x), i64::wrapping_add),
        DType::U8 => integer(op, acc, x, u8::wrapping_add),
    }
}

/// Combines `count` operands (at least two) in order into `out`. Half types are summed in f32 and rounded once.
/// `divisor` applies to a `Mean`.
pub(super) fn combine_all<'x>(
    over: Reduction,
    out: &mut [u8],
    (operand, count): (impl Fn(usize) -> &'x [u8], usize),
    divisor: Option<usize>,
) {
    match over.dtype {
        DType::F16 => half_all::<f16>(over.op, cast(out), (operand, count), divisor),
        DType::BF16 => half_all::<bf16>(over.op, cast(out), (operand, count), divisor),
        _ => {
            combine_into(over, out, (operand(0), operand(1)), divisor.filter(|_| count == 2));
            for index in 2..count {
                combine(over, out, operand(index), divisor.filter(|_| index + 1 == count));
            }
        }
    }
}

fn half_all<'x, T: bytemuck::Pod>(
    op: ReduceOp,
    out: &mut [T],
    (operand, count): (impl Fn(usize) -> &'x [u8], usize),
    divisor: Option<usize>,
) where
    [T]: HalfFloatSliceExt,
{
    let (mut wide_acc, mut wide_x) = ([0f32; WIDE], [0f32; WIDE]);
    let divisor = divisor.filter(|_| op == ReduceOp::Mean).map(|d| d as f32);
    for start in (0..out.len()).step_by(WIDE) {
        let range = start..(start + WIDE).min(out.len());
        let values = |index| &bytemuck::cast_slice::<u8, T>(operand(index))[range.clone()];
        let (acc, x) = (&mut wide_acc[..range.len()], &mut wide_x[..range.len()]);
        values(0).convert_to_f32_slice(acc);
        for index in 1..count {
            values(index).convert_to_f32_slice(x);
            float(op, acc, x, divisor.filter(|_| index + 1 == count));
        }
        out[range].convert_from_f32_slice(acc);
    }
}

/// `out = a op b`. The same as copying `a` and combining `b` into it; saves that pass for the sums and means of f32
/// that gradients use.
fn combine_into(over: Reduction, out: &mut [u8], (a, b): (&[u8], &[u8]), divisor: Option<usize>) {
    let Reduction { dtype, op } = over;
    if dtype == DType::F32 && matches!(op, ReduceOp::Sum | ReduceOp::Mean) {
        let divisor = divisor.filter(|_| op == ReduceOp::Mean).map(|d| d as f32);
        let (a, b): (&[f32], &[f32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
        let out = cast::<f32>(out);
        let sums = out.iter_mut().zip(a.iter().zip(b));
        match divisor {
            Some(d) => sums.for_each(|(o, (a, b))| *o = (a + b) / d),
            None => sums.for_each(|(o, (a, b))| *o = a + b),
        }
    } else {
        out.copy_from_slice(a);
        combine(over, out, b, divisor);
    }
}

fn cast<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

fn zip<T: Copy>(acc: &mut [T], x: &[T], f: impl Fn(T, T) -> T) {
    for (a, &b) in acc.iter_mut().zip(x) {
        *a = f(*a, b);
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

fn float<T: Float>(op: ReduceOp, acc: &mut [T], x: &[T], divisor: Option<T>) {
    match (op, divisor) {
        (ReduceOp::Mean, Some(d)) => zip(acc, x, |a, b| (a + b) / d),
        (ReduceOp::Sum | ReduceOp::Mean, _) => zip(acc, x, |a, b| a + b),
        (ReduceOp::Max, _) => zip(acc, x, max),
        (ReduceOp::Min, _) => zip(acc, x, min),
    }
}

fn integer<T: Copy + Ord>(op: ReduceOp, acc: &mut [T], x: &[T], add: fn(T, T) -> T) {
    match op {
        // Groups reject a mean of integers earlier.
        ReduceOp::Sum | ReduceOp::Mean => zip(acc, x, add),
        ReduceOp::Max => zip(acc, x, |a, b| a.max(b)),
        ReduceOp::Min => zip(acc, x, |a, b| a.min(b)),
    }
}

/// Elements widened to f32 on the stack at a time: half's slice conversions use the CPU's instructions; conversions of
/// single elements would test for them at every element.
const WIDE: usize = 128;

fn half<T: Copy>(op: ReduceOp, acc: &mut [T], x: &[T], divisor: Option<usize>)
where
    [T]: HalfFloatSliceExt,
{
    let (mut wide_acc, mut wide_x) = ([0f32; WIDE], [0f32; WIDE]);
    for (a, b) in acc.chunks_mut(WIDE).zip(x.chunks(WIDE)) {
        let (wa, wb) = (&mut wide_acc[..a.len()], &mut wide_x[..b.len()]);
        a.convert_to_f32_slice(wa);
        b.convert_to_f32_slice(wb);
        float(op, wa, wb, divisor.map(|d| d as f32));
        a.convert_from_f32_slice(wa);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Element, SliceMut, SliceRef};

    fn run<T: Element>(op: ReduceOp, a: &[T], b: &[T], divisor: Option<usize>) -> Vec<T> {
        let mut acc = a.to_vec();
        let x = SliceRef::from(b);
        combine(Reduction { dtype: T::DTYPE, op }, SliceMut::from(&mut acc).bytes_mut(), x.bytes(), divisor);
        acc
    }

    #[test]
    fn nan_wins_in_max_and_min_on_either_side() {
        for op in [ReduceOp::Max, ReduceOp::Min] {
            let out = run(op, &[f32::NAN, 1.0], &[1.0, f32::NAN], None);
            assert!(out.iter().all(|v| v.is_nan()), "{op:?}: {out:?}");
            let out = run(op, &[f16::NAN, f16::ONE], &[f16::ONE, f16::NAN], None);
            assert!(out.iter().all(|v| v.is_nan()), "{op:?}: {out:?}");
        }
        assert_eq!(run(ReduceOp::Max, &[1.0f64, -2.0], &[0.5, 3.0], None), [1.0, 3.0]);
        assert_eq!(run(ReduceOp::Min, &[1.0f64, -2.0], &[0.5, 3.0], None), [0.5, -2.0]);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(run(ReduceOp::Sum, &[i32::MAX, 1], &[1, 2], None), [i32::MIN, 3]);
        assert_eq!(run(ReduceOp::Sum, &[250u8], &[10], None), [4]);
        assert_eq!(run(ReduceOp::Max, &[-1i64, 5], &[0, 4], None), [0, 5]);
    }

    #[test]
    fn a_mean_divides_once_and_exactly() {
        assert_eq!(run(ReduceOp::Mean, &[0.1f32], &[0.1], Some(2)), [0.1]);
        assert_eq!(run(ReduceOp::Mean, &[1.0f32], &[0.0], Some(3)), [1.0 / 3.0]);
        assert_eq!(run(ReduceOp::Mean, &[1.0f32], &[2.0], None), [3.0]);
        // The sum alone would overflow f16; the mean does not.
        let big = f16::from_f32(60000.0);
        assert_eq!(run(ReduceOp::Mean, &[big], &[big], Some(2)), [big]);
        // The other operations ignore a divisor.
        assert_eq!(run(ReduceOp::Sum, &[1.0f32], &[2.0], Some(2)), [3.0]);
    }

    #[test]
    fn out_of_place_is_the_same_bits_as_in_place() {
        let a: Vec<f32> = (0..1001).map(|i| (i as f32).sin() * 1e3).collect();
        let b: Vec<f32> = (0..1001).map(|i| (i as f32 * 0.7).cos()).collect();
        for (op, divisor) in ReduceOp::ALL.into_iter().flat_map(|op| [(op, None), (op, Some(3))]) {
            let mut out = vec![0f32; a.len()];
            let pair = (SliceRef::from(&a).bytes(), SliceRef::from(&b).bytes());
            combine_into(
                Reduction { dtype: DType::F32, op },
                SliceMut::from(&mut out).bytes_mut(),
                pair,
                divisor,
            );
            assert_eq!(out, run(op, &a, &b, divisor), "{op:?} {divisor:?}");
        }
    }

    #[test]
    fn many_halves_are_rounded_once() {
        // 256 + 1 is 256 in bf16, so adding one by one would stay there.
        let values = [256.0f32, 1.0, 1.0, 1.0, 1.0].map(|v| vec![bf16::from_f32(v); 300]);
        let operand = |i: usize| SliceRef::from(&values[i]).bytes();
        for (op, divisor, want) in
            [(ReduceOp::Sum, None, 260.0), (ReduceOp::Mean, Some(5), 52.0), (ReduceOp::Max, None, 256.0)]
        {
            let mut out = vec![bf16::ZERO; 300];
            let over = Reduction { dtype: DType::BF16, op };
            combine_all(over, SliceMut::from(&mut out).bytes_mut(), (operand, 5), divisor);
            assert_eq!(out, vec![bf16::from_f32(want); 300], "{op:?}");
        }
    }

    #[test]
    fn half_types_round_once_from_f32_at_every_length() {
        for n in [0, 1, 7, 127, 128, 129, 300] {
            let a: Vec<bf16> = (0..n).map(|i| bf16::from_f32(i as f32 * 0.37)).collect();
            let b: Vec<bf16> = (0..n).map(|i| bf16::from_f32(1.0 + i as f32 * 0.11)).collect();
            let want: Vec<bf16> =
                a.iter().zip(&b).map(|(a, b)| bf16::from_f32(a.to_f32() + b.to_f32())).collect();
            assert_eq!(run(ReduceOp::Sum, &a, &b, None), want, "n = {n}");
        }
    }
}
