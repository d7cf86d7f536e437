//! What depends on cargo features, in whole or (`examples`, `golden`) in part, and what trains in this process, which links all of Burn.
//! CI builds this program once more with the features that are not default.

mod bucket_order;
#[cfg(all(feature = "parquet", feature = "sqlite"))]
mod columns;
#[path = "../common/mod.rs"]
mod common;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod device;
#[cfg(feature = "cuda")]
mod emulated_cuda;
mod examples;
#[cfg(feature = "download")]
mod fetch;
mod golden;
mod golden_lm;
#[cfg(feature = "mpi")]
mod mpi;
mod own_loop;
mod packing;
#[cfg(feature = "mlflow")]
mod sinks;
mod training;
