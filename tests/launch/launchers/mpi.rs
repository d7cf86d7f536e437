//! `mpirun -n 2 ddp-run SPEC`, by Open MPI and by MPICH.

use super::trial::*;
use crate::common::*;
use std::process::Command;

fn open_mpi() -> Option<Command> {
    let mut command = Command::new(found("mpirun.openmpi")?);
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", "2"]);
    Some(command)
}

fn mpich() -> Option<Command> {
    let mut command = Command::new(found("mpirun.mpich")?);
    // Within a Slurm job it would start its proxy by srun.
    command.args(["-launcher", "fork", "-n", "2"]);
    Some(command)
}

#[test]
fn open_mpis_ranks_train_as_ddp_runs_own() {
    let _alone = alone();
    let Some(mpirun) = open_mpi() else { return };
    let trial = Trial::new();
    let told = trial.run(mpirun, &trial.ddp_run(&[]));
    assert!(told.contains("launched by Open MPI: rank 0 of 2"), "{told}");
    assert_eq!(trial.launcher(), "Open MPI: rank 0 of 2");
    trial.assert_same_bits();
}

/// Through a shell, so that the ranks have different parents.
#[test]
fn mpichs_ranks_train_as_ddp_runs_own() {
    let _alone = alone();
    let Some(mpirun) = mpich() else { return };
    let trial = Trial::new();
    let told = trial.run(mpirun, &trial.noted(&[]));
    assert!(told.contains("launched by MPICH: rank 0 of 2"), "{told}");
    trial.assert_same_bits();
}

/// Each finds its own port.
#[test]
fn two_concurrent_mpiruns_do_not_connect() {
    let _alone = alone();
    for launcher in [open_mpi, mpich] {
        let (Some(one), Some(other)) = (launcher(), launcher()) else { continue };
        let trials = (Trial::new(), Trial::new());
        std::thread::scope(|scope| {
            scope.spawn(|| trials.0.run(one, &trials.0.ddp_run(&[])));
            scope.spawn(|| trials.1.run(other, &trials.1.ddp_run(&[])));
        });
        trials.0.assert_same_bits();
        trials.1.assert_same_bits();
    }
}

#[test]
fn a_killed_rank_ends_the_others() {
    let _alone = alone();
    if let Some(mpirun) = open_mpi() {
        Trial::new().kill_rank_1(mpirun, "OMPI_COMM_WORLD_RANK");
    }
    if let Some(mpirun) = mpich() {
        Trial::new().kill_rank_1(mpirun, "PMI_RANK");
    }
}

/// A shell by the name of `mpirun` starts rank 1; rank 0 never comes.
#[test]
fn a_rank_whose_mpirun_was_killed_does_not_wait_for_the_others() {
    let _alone = alone();
    let (trial, dir) = (Trial::new(), tempfile::tempdir().expect("tempdir"));
    let mpirun = dir.path().join("mpirun");
    std::os::unix::fs::symlink("/bin/sh", &mpirun).expect("the scratch folder is writable");
    let mut launcher = Command::new(&mpirun);
    launcher.args(["-c", "\"$@\"; true", "mpirun"]);
    for (name, value) in [("RANK", "1"), ("SIZE", "2"), ("LOCAL_RANK", "1"), ("LOCAL_SIZE", "2")] {
        launcher.env(format!("OMPI_COMM_WORLD_{name}"), value);
    }
    let mut started = trial.start(launcher, &trial.ddp_run(&[]));
    assert!(within(HUNG, || trial.log(1).contains("launched by Open MPI")), "{}", started.told());
    started.kill_launcher();
    // init_timeout is 300 s.
    assert!(within(HUNG / 3, || processes(&trial.out).is_empty()), "it waits: {}", started.told());
    assert!(started.told().contains("error: mpirun, which started this rank"), "{}", started.told());
}
