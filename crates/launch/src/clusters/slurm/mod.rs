//! Slurm: the environment of a job's processes, requeuing a job, and the batch script that submits one.

mod config;
mod environment;
mod requeue;
mod sbatch;

pub(super) use collectives::launchers::slurm::{first_host, port, step};
pub use config::SlurmConfig;
pub(super) use environment::{claim, node_rank};
#[cfg(test)]
pub(super) use requeue::Requeue;
pub use requeue::SlurmJob;
pub use sbatch::{Launcher, Sbatch, TimeLimit};
