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
            "{call}: mean is not defined for {dtype}; use sum, or convert to a float type"
        )));
    }
    Ok(())
}

pub(crate) fn root(call: &str, root: usize, world: usize) -> Result<(), CommError> {
    if root >= world {
        return Err(misuse(format!("{call}: root {root} is out of range for world size {world}")));
    }
    Ok(())
}

pub(crate) fn peer(call: &str, peer: usize, me: usize, world: usize) -> Result<(), CommError> {
    if peer >= world {
        return Err(misuse(format!("{call}: rank {peer} is out of range for world size {world}")));
    }
    if peer == me {
        return Err(misuse(format!("{call}: rank {me} cannot send to or receive from itself")));
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
            "{call}: the types of input and output differ: {} and {}",
            block.0, whole.0
        )));
    }
    if block.1.checked_mul(world) != Some(whole.1) {
        return Err(misuse(format!(
            "{call}: expected {world} blocks of {} elements, got {} elements",
            block.1, whole.1
        )));
    }
    Ok(())
}
