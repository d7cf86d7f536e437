//! Checkpoints: what a run leaves behind so that nothing is lost, and what it reads to go on.
//!
//! [`mod@format`] says what a checkpoint directory is; [`CheckpointStore`] writes one so that it is complete or absent,
//! finds the newest that verifies and drops old ones; [`AsyncSaver`] does the writing beside the training loop.
//! [`read_weights`] and [`match_weights`] bring in PyTorch's weights, [`export()`] and [`inspect()`] serve the
//! commands of these names. Tensors are bytes on the host here: no device, no Burn type.

mod config;
mod digest;
mod every;
pub mod export;
#[cfg(test)]
mod fault;
pub mod format;
pub mod fs;
pub mod inspect;
mod load;
mod matching;
mod pretrained;
mod retention;
mod snapshot;
mod stats;
mod store;
mod tensor;
pub mod tensor_file;
mod writer;

#[cfg(test)]
mod corruption_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod testing;

pub use config::{CheckpointConfig, OnPreempt, RankBy};
pub use every::Every;
pub use export::{ExportOptions, export};
pub use format::State;
pub use inspect::{Inspection, inspect};
pub use load::{Loaded, find_store, load, load_any, read_state, verify};
pub use matching::{Wanted, match_weights};
pub use pretrained::read_weights;
pub use retention::{BestBy, Direction, Retention};
pub use snapshot::Snapshot;
pub use store::{CheckpointStore, Entry, Saved};
pub use tensor::{Dtype, TensorData, TensorMap};
pub use writer::AsyncSaver;
