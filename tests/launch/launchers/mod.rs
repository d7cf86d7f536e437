//! torchrun's flags, variables and files (`flags`, `error_file`), and the real launchers: two ranks each of the smallest job by torchrun, srun and mpirun, and by hand. What they come to
//! is what `ddp-run --nproc-per-node 2` comes to, bit by bit; a rank that is killed ends the others. A launcher
//! that is not on this machine is skipped with a printed line.
#![cfg(target_os = "linux")]

mod by_hand;
mod error_file;
mod flags;
mod mpi;
mod slurm;
mod torchrun;
mod trial;
