//! Checkpoints: saving a run's state and loading it to resume.
//!
//! [`mod@format`] defines the checkpoint directory. [`CheckpointStore`] writes one atomically, finds the newest one
//! that verifies, and applies the retention policy; [`AsyncSaver`] writes on a thread beside the training loop.
//! [`open_weights`] and [`match_weights`] import PyTorch's weights; [`export()`] and [`inspect()`] implement the
//! commands of these names. Tensors are bytes in host memory here, without devices or Burn types.

#![warn(missing_docs)]
#![deny(unsafe_code)]

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod config;
mod digest;
mod every;
mod export;
#[cfg(test)]
mod fault;
pub mod format;
mod fs;
mod hub;
mod inspect;
mod load;
mod matching;
mod pretrained;
mod rank_by;
mod retention;
mod score;
mod shards;
mod snapshot;
mod stats;
mod store;
mod stored;
mod tensor;
pub mod tensor_file;
mod tensor_metadata;
mod writer;

#[cfg(test)]
mod corruption_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod testing;

pub use config::{CheckpointConfig, OnPreempt};
pub use digest::sha256_hex;
pub use every::Every;
pub use export::{ExportOptions, converted, export};
pub use format::{RunState, USAGE_FILE};
pub use hub::{HubTensor, from_hub, to_hub};
pub use inspect::{Inspection, inspect};
pub use load::{Loaded, find_store, load, load_any, read_state, verify};
pub use matching::{ModelTensor, match_weights};
pub use pretrained::{open_weights, read_weights};
pub use rank_by::{RankBy, StandardMetric};
pub use score::Score;
pub use shards::{is_shard, write_shards};
pub use snapshot::Snapshot;
pub use store::{CheckpointStore, Entry, SavedCheckpoint};
pub use stored::{StoredMap, StoredTensor};
pub use tensor::{Dtype, Named, NamedMap, TensorData, TensorMap};
pub use writer::AsyncSaver;
