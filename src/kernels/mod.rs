//! CPU kernels for the layers that a ResNet spends its time in, as pure functions on `f32` slices in NCHW order:
//! [`conv`] (2-d convolution and its three gradients), [`norm`] (batch normalisation), [`pool`] (max pooling) and
//! [`elementwise`] (ReLU, and addition with ReLU). They know nothing of Burn; the models wrap them as custom operations.
//!
//! Every function gives the same bits for the same inputs at any `parallelism`: the work is cut into tasks by the shape
//! alone, and every sum has one fixed order. All but [`conv`] also give the same bits on every x86-64 processor, because
//! their wide variants keep the order of the plain one and never contract a product and a sum into one rounding;
//! [`conv`] leaves its products to the `gemm` crate, which picks its instructions by processor.

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
