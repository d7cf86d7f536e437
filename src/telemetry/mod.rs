//! What a run tells the world: metrics, progress, logs, provenance, TensorBoard and the report.
//!
//! Events flow in one direction, from the trainer to here; nothing here calls back. `metrics.jsonl` ([`MetricsWriter`],
//! [`Event`]) is the contract that scripts hold on to; everything else is for people and is made from the same events.

mod clock;
mod conclude;
mod events;
mod numbers;
mod progress;
pub mod provenance;
pub mod report;
mod run_id;
mod screen;
mod tensorboard;
mod writer;

pub use clock::rfc3339;
pub use conclude::Before;
pub use events::{
    CheckpointEvent, EndEvent, EpochEvent, Event, Metrics, RestartEvent, ResumeEvent, StepEvent,
};
pub use progress::{EpochLine, Progress, ProgressMode, StepLine, Totals, epoch_summary, tutorial_line};
pub use provenance::Provenance;
pub use run_id::RunId;
pub use tensorboard::TensorBoardWriter;
pub use writer::{MetricsWriter, read_events};

/// Syncs `file`, moves it from `partial` to `path`, and syncs the folder: afterwards `path` is the new file, whole, also
/// after a power cut; before, it is the old one.
fn persist(file: std::fs::File, partial: &std::path::Path, path: &std::path::Path) -> std::io::Result<()> {
    file.sync_all()?;
    drop(file);
    std::fs::rename(partial, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(std::path::Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

/// As [`persist`], for bytes at hand.
pub(crate) fn write_atomically(path: &std::path::Path, bytes: &[u8]) -> crate::error::Result<()> {
    use crate::error::IoContext;
    use std::io::Write;
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = std::path::PathBuf::from(partial);
    let mut file = std::fs::File::create(&partial).doing("write", &partial)?;
    file.write_all(bytes).doing("write", &partial)?;
    persist(file, &partial, path).doing("write", path)
}
