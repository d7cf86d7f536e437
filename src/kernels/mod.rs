//! CPU kernels for the most expensive layers of a ResNet, as pure functions on `f32` slices in NCHW order: [`conv`]
//! (2-d convolution and its three gradients), [`norm`] (batch normalisation), [`pool`] (max pooling) and
//! [`elementwise`] (ReLU, and addition with ReLU). They do not depend on Burn; the models wrap them as custom
//! operations.
//!
//! Every function gives the same bits for the same inputs at any `parallelism`: the shape alone determines the tasks,
//! and every sum has a fixed order. All but [`conv`] also give the same bits on every x86-64 processor, because their
//! wide variants keep the order of the plain one and never contract a product and a sum into one rounding. [`conv`]
//! uses the `gemm` crate, which selects instructions by processor.

pub mod conv;
mod conv_plan;
mod conv_weight;
pub mod elementwise;
mod layout;
pub mod norm;
mod norm_loops;
pub mod pool;
mod product;
mod tasks;
mod wide;
