//! The `mpi` engine: the process group on the cluster's own MPI, for fabrics that it knows and TCP does not. Needs the
//! cargo feature `mpi`; without it this module only says so.
//!
//! MPI blocks where it pleases and ends the process where it fails. Here every operation is a non-blocking one that the
//! calling thread drives with `MPI_Test`, so that a call can hear of failures and give up at its deadline. From the
//! outside in: `MpiGroup` checks arguments and takes the lock; `meet` starts MPI and compares the ranks' plans; `engine`
//! opens each call with a *notice* in which every rank says what it calls; `transfer` moves buffers in chunks through
//! memory that MPI may keep if a call fails; `news` is what ranks tell each other beside the calls; `keeper` is the
//! thread that MPI was started on; `library` holds all of the unsafe code.

#[cfg(feature = "mpi")]
mod engine;
#[cfg(feature = "mpi")]
mod group;
#[cfg(feature = "mpi")]
mod keeper;
#[cfg(feature = "mpi")]
mod library;
#[cfg(feature = "mpi")]
mod meet;
#[cfg(feature = "mpi")]
mod news;
#[cfg(feature = "mpi")]
mod pause;
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

/// What this process was told of the run; MPI itself and the other ranks must say the same.
#[derive(Clone, Debug)]
pub struct MpiConfig {
    /// This process's number.
    pub rank: usize,
    /// The number of processes.
    pub world_size: usize,
    /// Digest of what the ranks are about to do, at most 128 bytes; different ones fail the start.
    pub plan_hash: String,
    /// From the call until all ranks have met.
    pub init_timeout: Duration,
    /// Of each collective later on.
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

/// Starts MPI, which a process can do once, and meets the other ranks.
#[cfg(feature = "mpi")]
pub fn connect(config: &MpiConfig) -> Result<Arc<dyn ProcessGroup>> {
    Ok(Arc::new(MpiGroup::connect(config)?))
}

/// Starts MPI: not in this build (exit 69).
#[cfg(not(feature = "mpi"))]
pub fn connect(_: &MpiConfig) -> Result<Arc<dyn ProcessGroup>> {
    Err(crate::error::Error::unavailable(status().unwrap_err()))
}
