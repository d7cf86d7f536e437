//! The process group of a program's own processes.

use crate::gloo::GlooGroup;
use crate::{CommError, Options, ProcessGroup, SoloGroup};
use std::sync::Arc;

/// Connects this process to the other ranks of its run, as PyTorch's `init_process_group`; returns when all ranks are connected.
/// A single rank gets a [`SoloGroup`].
///
/// Errors: the options are incomplete or wrong ([`CommErrorKind::Configuration`](crate::CommErrorKind)), or the ranks do not find
/// each other before `init_timeout`, or one could not prove the run's secret (`Rendezvous`).
///
/// ```no_run
/// use ddp_run_collectives::{Options, ReduceOp, init};
///
/// let group = init(Options::from_env()?)?;
/// let mut loss = [0.25f32];
/// group.all_reduce((&mut loss[..]).into(), ReduceOp::Mean)?;
/// # Ok::<(), ddp_run_collectives::CommError>(())
/// ```
pub fn init(options: Options) -> Result<Arc<dyn ProcessGroup>, CommError> {
    if (options.rank, options.world_size) == (0, 1) {
        return Ok(Arc::new(SoloGroup::default()));
    }
    Ok(Arc::new(GlooGroup::connect(options.rendezvous()?, options.gloo)?))
}

#[cfg(test)]
mod tests;
