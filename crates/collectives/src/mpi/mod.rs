//! The `mpi` engine: the process group on the cluster's own MPI, for fabrics that MPI supports and TCP does not.
//! Requires the cargo feature `mpi`; without it, `missing` takes the place of this module.
//!
//! MPI may block anywhere, and ends the process when it fails. Here every operation is non-blocking, and the calling
//! thread drives it with `MPI_Test`, so that a call can detect failures and end at its deadline. From the outside
//! in: `MpiGroup` checks arguments and takes the lock; `start` starts MPI and compares the ranks' plans; `engine` opens
//! each call with a *notice* in which every rank announces its call; `transfer` moves buffers in chunks through memory
//! that MPI may keep if a call fails; `control_messages` sends failures, goodbyes and probes beside the calls; `init_thread` is the thread that
//! starts MPI; `library` contains all unsafe code.

mod backoff;
mod control_messages;
mod engine;
mod group;
mod init_thread;
mod library;
mod start;
#[cfg(test)]
mod tests;
mod transfer;

use group::MpiGroup;

use super::{CommError, MpiConfig, ProcessGroup};
use std::sync::Arc;

/// The MPI library of this build.
pub fn status() -> Result<String, String> {
    library::version()
}

/// Starts MPI, which a process can do only once, and waits for the other ranks.
pub fn connect(config: &MpiConfig) -> Result<Arc<dyn ProcessGroup>, CommError> {
    Ok(Arc::new(MpiGroup::connect(config)?))
}
