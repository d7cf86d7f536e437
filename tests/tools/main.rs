//! The subcommands that start runs, or show what is there of them.

mod bench;
mod bisect;
#[cfg(feature = "board")]
mod board;
#[path = "../common/mod.rs"]
mod common;
mod forecast;
mod rehearse;
mod report_page;
mod repro;
mod runs;
mod sweep;
