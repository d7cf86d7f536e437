//! Data-parallel gradients: every parameter is tapped on its way into the forward pass, so that its finished gradient
//! arrives here while the backward pass still runs; gradients fill buckets, and a communication thread averages full
//! buckets over the ranks meanwhile. What PyTorch calls `DistributedDataParallel`.

mod buckets;
mod reducer;
mod tap;

pub use buckets::{BucketCaps, BucketLayout, Slot};
pub use reducer::Reducer;
pub use tap::{GradientSink, TapLadder};
