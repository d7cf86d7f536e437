//! Runs with the real binary, from their data to their results: training, stopping, resuming, evaluation and prediction.

mod anatomy;
mod cards;
#[path = "../common/mod.rs"]
mod common;
mod data;
mod evaluations;
mod gguf;
mod history;
mod not_finite;
mod predict;
mod preempt;
mod resize;
mod resume;
mod tokens;
mod train;
