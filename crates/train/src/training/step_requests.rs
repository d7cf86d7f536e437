//! What ranks exchange once a step besides gradients: the sums of the step, and requests (stop, save).

use super::Sums;
use collectives::{CommError, ProcessGroup};

/// Requests; after the exchange, set on all ranks if any rank set them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepRequests {
    pub stop: bool,
    pub save: bool,
}

/// Adds `sums` over the ranks and combines their `flags`, in one small all-reduce.
pub fn exchange(
    mut sums: Sums,
    flags: StepRequests,
    group: &dyn ProcessGroup,
) -> Result<(Sums, StepRequests), CommError> {
    let mut requests = [flags.stop, flags.save].map(f64::from);
    sums.all_reduce(&mut requests, group)?;
    let [stop, save] = requests.map(|ranks| ranks > 0.0);
    Ok((sums, StepRequests { stop, save }))
}
