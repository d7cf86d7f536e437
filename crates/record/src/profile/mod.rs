//! `--profile`: what the threads of each rank did in some steps, from the tracing spans of the program, as Chrome traces
//! that Perfetto opens. A rank keeps its part in memory, and writes it when the steps are done; at the end of the run, the
//! parts are put together.

mod layer;
mod steps;
mod trace;

pub use layer::Profile;
pub use steps::ProfileSteps;
pub use trace::merge;

use std::path::{Path, PathBuf};

/// The file of a whole run.
pub fn path(out_dir: &Path) -> PathBuf {
    out_dir.join("profile.json")
}

/// The folder of the ranks' parts.
pub fn folder(out_dir: &Path) -> PathBuf {
    out_dir.join("profile")
}

/// The part of one rank.
pub fn part(out_dir: &Path, rank: usize) -> PathBuf {
    folder(out_dir).join(format!("rank-{rank}.json"))
}
