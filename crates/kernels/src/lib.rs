//! The arithmetic of ddp-run on CPUs, as pure functions on slices of `f32` ([`reduction`] has further types). It does not
//! depend on Burn; ddp-run's models wrap the kernels as custom operations. It is a package of its own because every
//! profile optimises it. A generic function is compiled with its caller, in a development build without optimisation: a
//! hot loop here has no type that a caller chooses, but [`fused::for_each`] for optimizers without a
//! [formula](formula::Formula).
//!
//! - Images, in NCHW order: [`conv`] (2-d convolution and its three gradients), [`norm`] (batch normalisation), [`pool`]
//!   (max pooling) and [`elementwise`] (ReLU, and addition with ReLU).
//! - Rows: [`linear`] (with ReLU or GELU), [`layer_norm`], [`rms_norm`], [`rotary`] positions, [`attention`],
//!   [`cross_entropy`], and [`head`], which is a linear layer with it.
//! - Any shape: [`dropout`], [`swiglu`].
//! - Parameters: [`formulas`] of the optimizers, [`fused`] loops over parameter and state, [`global_norm`].
//! - Collectives: [`reduction`], of seven element types.
//!
//! Every function gives the same bits for the same inputs at any `parallelism`: the shape alone determines the order of
//! every sum. All but [`conv`], [`linear`] and [`head`] also give the same bits on every x86-64 processor, because their wide
//! variants keep the order of the plain one, and a product and a sum are rounded once only where the code says `mul_add`.
//! These three use the `gemm` crate, which selects instructions by processor; and the loss of [`cross_entropy`] contains a
//! logarithm of the platform.

#![warn(missing_docs)]
#![deny(unsafe_code)]

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod attention;
mod attention_loops;
pub mod conv;
mod conv_plan;
mod conv_weight;
pub mod cross_entropy;
mod direct;
pub mod dropout;
pub mod elementwise;
pub mod formula;
pub mod formulas;
pub mod fused;
pub mod global_norm;
pub mod head;
mod lanes;
pub mod layer_norm;
mod layout;
pub mod linear;
mod math;
pub mod norm;
mod norm_loops;
mod panel;
pub mod peak;
pub mod pool;
mod product;
pub mod reduction;
pub mod rms_norm;
pub mod rotary;
pub mod swiglu;
mod tasks;
#[doc(hidden)]
pub mod testing;
mod transpose;
mod wide;

pub use panel::Panel;
pub use product::{MatMul, Matrix};
