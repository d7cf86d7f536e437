//! ddp-run: distributed data-parallel training on Burn, from a TOML job spec.
//!
//! One way through: [`spec`] (what was typed) -> [`plan`] (everything resolved and checked) -> `start` -> [`launch`] (processes; of several
//! nodes: [`nodes`]; under a cluster's launcher: [`clusters`]) ->
//! [`worker`] (one rank: process group, data, model, optimizer, checkpoint) -> [`train`] (the loop). The other rooms serve
//! these: [`comm`] collectives, [`ddp`] gradient buckets, [`data`], [`models`], [`optim`], [`checkpoint`], [`history`],
//! [`telemetry`].
//! A user's crate adds models and data sets through [`registry::Registry`].

#[macro_use]
mod say;
mod caught;
mod exit_code;
mod files;
mod show;
mod start;

pub mod bench;
pub mod checkpoint;
pub mod cli;
pub mod clusters;
pub mod comm;
pub mod data;
pub mod ddp;
pub mod device;
pub mod error;
pub mod history;
pub mod kernels;
pub mod launch;
pub mod models;
pub mod nodes;
pub mod optim;
pub mod plan;
pub mod registry;
pub mod spec;
pub mod telemetry;
pub mod train;
pub mod worker;

pub use registry::Registry;
