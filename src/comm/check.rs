//! Argument checks that every engine makes before any communication. The error is `Misuse`; it says what was called and
//! what would be valid.

use super::{CommError, CommErrorKind, DType, ReduceOp};

fn misuse(message: String) -> CommError {
    CommError::new(CommErrorKind::Misuse, None, message)
}

/// `Mean` requires a float type.
pub(crate) fn reduction(call: &str, dtype: DType, op: ReduceOp) -> Result<(), CommError> {
    if op == ReduceOp::Mean && !dtype.is_float() {
        return Err(misuse(format!(
            "{call}: a mean of {dtype} is not defined; sum, or convert to a float type"
        )));
    }
    Ok(())
}

pub(crate) fn root(call: &str, root: usize, world: usize) -> Result<(), CommError> {
    if root >= world {
        return Err(misuse(format!("{call}: root {root} is not a rank of a world of {world}")));
    }
    Ok(())
}

pub(crate) fn peer(call: &str, peer: usize, me: usize, world: usize) -> Result<(), CommError> {
    if peer >= world {
        return Err(misuse(format!("{call}: rank {peer} is not in a world of {world}")));
    }
    if peer == me {
        return Err(misuse(format!("{call}: rank {me} cannot exchange messages with itself")));
    }
    Ok(())
}

/// The `whole` side of a gather or scatter holds `world` times the elements of the `block` side (type, elements).
pub(crate) fn blocks(
    call: &str,
    block: (DType, usize),
    whole: (DType, usize),
    world: usize,
) -> Result<(), CommError> {
    if block.0 != whole.0 {
        return Err(misuse(format!(
            "{call}: input and output are of two types, {} and {}",
            block.0, whole.0
        )));
    }
    if block.1.checked_mul(world) != Some(whole.1) {
        return Err(misuse(format!(
            "{call}: {} elements are not {world} blocks of {} elements",
            whole.1, block.1
        )));
    }
    Ok(())
}
