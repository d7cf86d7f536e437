//! Scripts that hand a job to a cluster's scheduler: text from numbers. Nothing is run here.

mod shell;
mod slurm;

pub use slurm::{Launcher, Sbatch, TimeLimit};
