//! What every crate of ddp-run needs: errors, files, text for people.
//!
//! * [`error`]: what went wrong, what to do about it, and the exit code.
//! * [`files`]: files that other processes see whole or not at all.
//! * [`show`]: foreign text made safe to print, and tables that fit a terminal.
//! * [`say`](mod@say): status lines on standard error that neither fail nor wait for a reader ([`say!`], [`inform!`]).
//! * [`named`](mod@named): enums whose values have names ([`named!`]).

#![deny(unsafe_code)]

/// The example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod error;
pub mod exit_code;
pub mod files;
pub mod named;
pub mod say;
pub mod show;
#[doc(hidden)]
pub mod testing;
