//! Argument checks that every engine makes before any communication. Each returns what is wrong, and what would be
//! valid.

use super::{DType, ReduceOp};

/// `Mean` requires a float type.
pub(super) fn reduction(dtype: DType, op: ReduceOp) -> Option<String> {
    (op == ReduceOp::Mean && !dtype.is_float())
        .then(|| format!("mean is not defined for {dtype}; use sum, or convert to a float type"))
}

pub(super) fn root(root: usize, world: usize) -> Option<String> {
    (root >= world).then(|| format!("root {root} is out of range for world size {world}"))
}

pub(super) fn peer(peer: usize, me: usize, world: usize) -> Option<String> {
    if peer == me {
        return Some(format!("rank {me} cannot send to or receive from itself"));
    }
    (peer >= world).then(|| format!("rank {peer} is out of range for world size {world}"))
}

/// The `whole` side of a gather or scatter holds `world` times the elements of the `block` side (type, elements).
pub(super) fn blocks(block: (DType, usize), whole: (DType, usize), world: usize) -> Option<String> {
    if block.0 != whole.0 {
        return Some(format!("the types of input and output differ: {} and {}", block.0, whole.0));
    }
    let fits = block.1.checked_mul(world) == Some(whole.1);
    (!fits).then(|| format!("expected {world} blocks of {} elements, got {} elements", block.1, whole.1))
}
