#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
extern crate base;

pub mod plan;
pub mod reference;
pub mod registry;
pub mod start;
pub mod versions;
pub mod worker;

pub use registry::Registry;
