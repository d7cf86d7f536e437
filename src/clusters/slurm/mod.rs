//! Slurm: what it tells the processes of a job, how a job is put back into its queue, and the batch script that submits one.

mod config;
mod environment;
mod hostlist;
mod requeue;
mod sbatch;

pub use config::SlurmConfig;
pub(super) use environment::{claim, first_host, node_rank, port, step};
pub use requeue::SlurmJob;
pub use sbatch::{Launcher, Sbatch, TimeLimit};
