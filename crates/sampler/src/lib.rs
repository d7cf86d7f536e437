#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod mt19937;
mod sampler;
#[cfg(test)]
mod testing;

pub use sampler::{DistributedSampler, EpochIndices, EvalBatches, EvalShard, Order, Prefix};
