//! What ranks exchange once a step besides gradients: the sums of the step, and requests (stop, save).

use super::Sums;
use crate::comm::{CommError, ProcessGroup, ReduceOp};

/// Requests; after the exchange, set on all ranks if any rank set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub stop: bool,
    pub save: bool,
}

/// Adds `sums` over the ranks and combines their `flags`, in one small all-reduce.
pub fn exchange(sums: Sums, flags: Flags, group: &dyn ProcessGroup) -> Result<(Sums, Flags), CommError> {
    let mut all = [0.0; Sums::LEN + 2];
    let (numbers, requests) = all.split_at_mut(Sums::LEN);
    numbers.copy_from_slice(&sums.to_array());
    requests[0] = f64::from(flags.stop);
    requests[1] = f64::from(flags.save);
    group.all_reduce(all.as_mut_slice().into(), ReduceOp::Sum)?;
    let mut numbers = [0.0; Sums::LEN];
    numbers.copy_from_slice(&all[..Sums::LEN]);
    let flags = Flags { stop: all[Sums::LEN] > 0.0, save: all[Sums::LEN + 1] > 0.0 };
    Ok((Sums::from_array(numbers), flags))
}
