//! Data-parallel gradients, PyTorch's `DistributedDataParallel`: every parameter passes through a tap on its way into
//! the forward pass, so its finished gradient arrives here during the backward pass. Gradients fill buckets, and a
//! communication thread averages full buckets over the ranks meanwhile.

mod buckets;
mod collector;
mod comm_thread;
mod config;
mod device_hook;
mod error_feedback;
mod hook;
mod hook_state;
mod in_place;
#[cfg(test)]
mod in_place_tests;
mod on_device;
mod own_backward;
mod reducer;
mod tap;
#[cfg(test)]
mod tests;

pub use buckets::{BucketCaps, BucketLayout, Slot};
pub use config::{HookKeys, ReducerConfig};
pub use hook::{CommHook, HookKind, HookSource, hook_kind};
pub use hook_state::HookState;
pub use own_backward::OwnBackward;
pub use reducer::{AveragingTime, Reducer};
pub use tap::TapLadder;
