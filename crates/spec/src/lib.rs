//! Reads job specs as trees with source positions.
//!
//! A [`JobTree`] is a spec after `extends`, `--set` and `--unset`: every key and value in it knows the text that it
//! came from. Components read their tables through [`Fields`] into structs that declare the keys ([`Fields::config`]).
//! Every problem is collected with its position, so that [`Diagnostics`] shows all of them at once. Nothing here knows
//! what any key means, and nothing here touches a device, a socket or a data set: the only files
//! read are the spec and its bases.

#![warn(missing_docs)]
#![deny(unsafe_code)]

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod choice;
mod collect;
mod config;
mod decode;
mod diagnostics;
mod fields;
mod load;
mod merge;
mod names;
mod overrides;
mod parse;
mod parts;
mod period;
mod place;
mod problems;
pub mod range;
pub mod schema;
mod source;
mod steps;
mod suggest;
mod syntax;
mod tree;
mod values;

#[doc(hidden)]
pub use base;
pub use collect::{Declaration, ResolvedValue};
pub use diagnostics::{Diagnostics, Problem};
pub use fields::Fields;
pub use load::{Examined, JobTree, Texts, identify, shown_name};
pub use overrides::{Given, Override};
pub use period::Period;
pub use period::{duration, number_and_unit};
pub use source::{Origin, Source};
pub use steps::EverySteps;
pub use suggest::{closest, did_you_mean};
pub use syntax::Syntax;
pub use values::{Values, values};

#[doc(hidden)]
pub mod testing;
#[cfg(test)]
mod tests;
