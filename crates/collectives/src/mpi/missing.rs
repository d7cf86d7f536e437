//! The `mpi` engine of a build without the cargo feature `mpi`.

use super::{CommError, MpiConfig, ProcessGroup};
use std::sync::Arc;

/// Why this build has no MPI library.
pub fn status() -> Result<String, String> {
    Err("this build has no MPI support: build with `--features mpi`".to_owned())
}

/// Always fails: this build has no MPI.
pub fn connect(_: &MpiConfig) -> Result<Arc<dyn ProcessGroup>, CommError> {
    Err(CommError::unavailable(status().unwrap_err()))
}
