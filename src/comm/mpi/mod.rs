//! The `mpi` engine: the process group on the cluster's own MPI, for fabrics that MPI supports and TCP does not.
//! Requires the cargo feature `mpi`; without it, this module only reports that it is missing.
//!
//! MPI may block anywhere, and ends the process when it fails. Here every operation is non-blocking, and the calling
//! thread drives it with `MPI_Test`, so that a call can detect failures and end at its deadline. From the outside
//! in: `MpiGroup` checks arguments and takes the lock; `start` starts MPI and compares the ranks' plans; `engine` opens
//! each call with a *notice* in which every rank announces its call; `transfer` moves buffers in chunks through memory
//! that MPI may keep if a call fails; `control_messages` sends failures, goodbyes and probes beside the calls; `init_thread` is the thread that
//! starts MPI; `library` contains all unsafe code.

#[cfg(feature = "mpi")]
mod backoff;
#[cfg(feature = "mpi")]
mod control_messages;
#[cfg(feature = "mpi")]
mod engine;
#[cfg(feature = "mpi")]
mod group;
#[cfg(feature = "mpi")]
mod init_thread;
#[cfg(feature = "mpi")]
mod library;
#[cfg(feature = "mpi")]
mod start;
#[cfg(all(test, feature = "mpi"))]
mod tests;
#[cfg(feature = "mpi")]
mod transfer;

#[cfg(feature = "mpi")]
pub use group::MpiGroup;

use super::ProcessGroup;
use crate::error::Result;
use std::sync::Arc;
use std::time::Duration;

/// What this process was told about the run; MPI and the other ranks must agree with it.
#[derive(Clone, Debug)]
pub struct MpiConfig {
    /// This process's rank.
    pub rank: usize,
    /// The world size.
    pub world_size: usize,
    /// Digest of what the ranks are about to run, at most 128 bytes; different digests fail the start.
    pub plan_hash: String,
    /// Time limit from the call until all ranks are connected.
    pub init_timeout: Duration,
    /// Timeout of each later collective.
    pub timeout: Duration,
}

/// The MPI library of this build, or why there is none.
#[cfg(feature = "mpi")]
pub fn status() -> Result<String, String> {
    library::version()
}

/// The MPI library of this build, or why there is none.
#[cfg(not(feature = "mpi"))]
pub fn status() -> Result<String, String> {
    Err("this build has no MPI support: build with `--features mpi`".to_owned())
}

/// Starts MPI, which a process can do only once, and waits for the other ranks.
#[cfg(feature = "mpi")]
pub fn connect(config: &MpiConfig) -> Result<Arc<dyn ProcessGroup>> {
    Ok(Arc::new(MpiGroup::connect(config)?))
}

/// Always fails: this build has no MPI (exit 69).
#[cfg(not(feature = "mpi"))]
pub fn connect(_: &MpiConfig) -> Result<Arc<dyn ProcessGroup>> {
    Err(crate::error::Error::unavailable(status().unwrap_err()))
}
