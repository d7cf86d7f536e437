//! What every crate of ddp-run needs: errors, files, text for people.
//!
//! * [`panics`]: panics of users' code as errors.
//! * [`error`]: what went wrong, of what kind it is, and what to do about it.
//! * [`files`]: files that other processes see whole or not at all.
//! * [`display`]: foreign text made safe to print, and tables that fit a terminal.
//! * [`status`](mod@status): status lines on standard error that neither fail nor wait for a reader ([`status!`], [`info!`]).
//! * [`numbers`]: numbers for people.
//! * [`process_stat`]: what the system says of a process.
//! * [`screen`]: the terminal: its width, and where progress bars are drawn.
//! * [`variables`]: the environment.
//! * [`named`](mod@named): enums whose values have names ([`named!`]).

#![warn(missing_docs)]
#![deny(unsafe_code)]

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod display;
pub mod error;
pub mod files;
pub mod named;
pub mod numbers;
pub mod panics;
pub mod process_stat;
pub mod screen;
pub mod status;
#[doc(hidden)]
pub mod testing;
pub mod variables;
