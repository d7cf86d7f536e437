//! How the processes of a run start and end: the supervisor, launchers of ranks, batch scripts and schedulers.

#[path = "../common/mod.rs"]
mod common;
mod jobs;
mod launchers;
mod process;
mod slurm;
