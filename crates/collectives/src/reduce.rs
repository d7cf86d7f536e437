//! Reductions over byte buffers of one dtype; [`kernels::reduction`] has their arithmetic and says what it means. Half
//! types are rounded once per combination: of all ranks' operands in shared memory, of two at a time over links.

use super::{DType, ReduceOp};
use bytemuck::{cast_slice, cast_slice_mut};
use half::{bf16, f16};
use kernels::reduction::{Operation, Reduce};

/// The element type, and how elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub dtype: DType,
    pub op: ReduceOp,
}

/// Calls a generic function with the element type.
macro_rules! typed {
    ($dtype:expr, $function:ident($($argument:expr),*)) => {
        match $dtype {
            DType::F32 => $function::<f32>($($argument),*),
            DType::F64 => $function::<f64>($($argument),*),
            DType::F16 => $function::<f16>($($argument),*),
            DType::BF16 => $function::<bf16>($($argument),*),
            DType::I32 => $function::<i32>($($argument),*),
            DType::I64 => $function::<i64>($($argument),*),
            DType::U8 => $function::<u8>($($argument),*),
        }
    };
}
#[cfg(test)]
pub(super) use typed;

/// Combines `x` into `acc` (equal lengths, whole aligned elements of the type). `divisor` is passed with the last
/// contribution of a `Mean`; without it, a `Mean` only sums.
pub(super) fn combine(over: Reduction, acc: &mut [u8], x: &[u8], divisor: Option<usize>) {
    fn typed<T: Reduce + bytemuck::Pod>(op: Operation, acc: &mut [u8], x: &[u8], divisor: Option<usize>) {
        T::combine(op, cast_slice_mut(acc), cast_slice(x), divisor);
    }
    let (op, divisor) = over.operation(divisor);
    typed!(over.dtype, typed(op, acc, x, divisor));
}

/// Combines `count` operands (at least two) in order into `out`. `divisor` applies to a `Mean`.
pub(super) fn combine_all<'x>(
    over: Reduction,
    out: &mut [u8],
    (operand, count): (impl Fn(usize) -> &'x [u8], usize),
    divisor: Option<usize>,
) {
    fn typed<'x, T: Reduce + bytemuck::Pod>(
        op: Operation,
        out: &mut [u8],
        (operand, count): (&dyn Fn(usize) -> &'x [u8], usize),
        divisor: Option<usize>,
    ) {
        T::combine_all(op, cast_slice_mut(out), (&|index| cast_slice(operand(index)), count), divisor);
    }
    let (op, divisor) = over.operation(divisor);
    typed!(over.dtype, typed(op, out, (&operand, count), divisor));
}

impl Reduction {
    /// The operation, and the divisor as far as it applies to it. Groups reject a mean of integers earlier.
    fn operation(self, divisor: Option<usize>) -> (Operation, Option<usize>) {
        match self.op {
            ReduceOp::Sum => (Operation::Sum, None),
            ReduceOp::Mean => (Operation::Sum, divisor),
            ReduceOp::Max => (Operation::Max, None),
            ReduceOp::Min => (Operation::Min, None),
        }
    }
}
