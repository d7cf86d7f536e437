//! Slurm: the environment of a job's processes, requeuing a job, and the batch script that submits one.

mod config;
mod environment;
mod hostlist;
mod requeue;
mod sbatch;

pub use config::SlurmConfig;
pub(super) use environment::{claim, first_host, node_rank, port, step};
#[cfg(test)]
pub(super) use requeue::Requeue;
pub use requeue::SlurmJob;
pub use sbatch::{Launcher, Sbatch, TimeLimit};
