//! CPU kernels for the most expensive layers of the models, as pure functions on `f32` slices. They do not depend on
//! Burn; the models wrap them as custom operations.
//!
//! - Images, in NCHW order: [`conv`] (2-d convolution and its three gradients), [`norm`] (batch normalisation), [`pool`]
//!   (max pooling) and [`elementwise`] (ReLU, and addition with ReLU).
//! - Rows: [`linear`] (with ReLU or GELU), [`layer_norm`], [`attention`] and [`cross_entropy`].
//! - Any shape: [`dropout`].
//!
//! Every function gives the same bits for the same inputs at any `parallelism`: the shape alone determines the order of
//! every sum. All but [`conv`] and [`linear`] also give the same bits on every x86-64 processor, because their wide
//! variants keep the order of the plain one, and a product and a sum are rounded once only where the code says `mul_add`.
//! These two use the `gemm` crate, which selects instructions by processor; and the loss of [`cross_entropy`] contains a
//! logarithm of the platform.

pub mod attention;
mod attention_loops;
pub mod conv;
mod conv_plan;
mod conv_weight;
pub mod cross_entropy;
mod direct;
pub mod dropout;
pub mod elementwise;
mod lanes;
pub mod layer_norm;
mod layout;
pub mod linear;
mod math;
pub mod norm;
mod norm_loops;
mod panel;
pub mod pool;
mod product;
pub(crate) mod tasks;
#[cfg(test)]
pub(crate) mod testing;
mod transpose;
pub(crate) mod wide;

pub(crate) use panel::Panel;
pub(crate) use product::{MatMul, Matrix};
