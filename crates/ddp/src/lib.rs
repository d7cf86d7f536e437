#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod buckets;
pub mod buffers;
mod collector;
mod comm_thread;
mod config;
pub mod device;
mod device_hook;
mod error_feedback;
mod hook;
mod hook_state;
mod in_place;
#[cfg(test)]
mod in_place_tests;
#[cfg(feature = "learner")]
mod learner;
pub mod module;
mod on_device;
mod own_backward;
mod parallel;
#[cfg(test)]
mod parallel_tests;
mod reducer;
mod same_model;
mod tap;
pub mod tensors;
#[cfg(test)]
mod tests;

pub use base::error::{Error, ErrorKind, Result};
pub use buckets::{BucketCaps, BucketLayout, Slot};
pub use config::{HookKeys, ReducerConfig};
pub use hook::{CommHook, HookKind, HookSource, hook_kind};
pub use hook_state::HookState;
#[cfg(feature = "learner")]
pub use learner::DdpStrategy;
pub use own_backward::OwnBackward;
pub use parallel::{DdpOptions, DdpState, DistributedDataParallel};
pub use reducer::{AveragingTime, Reducer};
/// The samples of a rank, for a loop of one's own.
pub use sampler::{DistributedSampler, EpochIndices, EvalBatches, EvalShard, Order, Prefix};
pub use tap::{GradientSink, TapLadder};
