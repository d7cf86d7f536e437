//! Reads job specs as trees with source positions.
//!
//! A [`JobTree`] is a spec after `extends`, `--set` and `--unset`; every key and value in it has its source position.
//! Components read their tables with [`Fields`], most of them into a struct that declares the keys
//! ([`Fields::config`]). `Fields` collects all problems with their positions, so that [`Diagnostics`] shows them at
//! once. Nothing here knows the meaning of a key or touches a device, a socket or a data set: the only files read are
//! the spec and its bases.

mod accessors;
mod choice;
mod collect;
mod config;
mod decode;
mod diagnostics;
mod fields;
mod lists;
mod load;
mod merge;
mod overrides;
mod parse;
mod period;
mod range;
mod schema;
mod source;
mod suggest;
mod syntax;
mod tree;

pub(crate) use choice::choice;
pub use collect::ResolvedValue;
pub use diagnostics::Diagnostics;
pub use fields::Fields;
pub use load::JobTree;
pub use overrides::Override;
pub use period::Period;
pub(crate) use period::{duration, number_and_unit};
pub use source::Origin;
pub use suggest::did_you_mean;
pub use syntax::Syntax;
pub(crate) use syntax::syntax;

#[cfg(test)]
mod tests;
