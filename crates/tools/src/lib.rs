#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![deny(unsafe_code)]

#[macro_use]
extern crate base;

pub mod bench;
pub mod bisect;
#[cfg(feature = "board")]
pub mod board;
pub mod forecast;
pub mod lsp;
pub mod rehearse;
pub mod repro;
pub mod runs;
pub mod sweep;
