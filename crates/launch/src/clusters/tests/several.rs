//! Nested launchers, and launchers that contradict each other.

use super::*;

/// The variables are those of the real programs.
#[test]
fn launchers_within_launchers() {
    let name = |vars: &[(&str, &str)]| worker(vars).launcher;
    // mpirun in a batch script, and the daemons that it starts with srun.
    let batch = merged(&STEP, &[("SLURM_STEP_ID", ""), ("SLURM_PROCID", "0")]);
    let daemon = merged(&STEP, &[("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_PROCID", "0")]);
    assert_eq!(name(&merged(&batch, &OPEN_MPI)), Launcher::OpenMpi);
    assert_eq!(name(&merged(&daemon, &HYDRA)), Launcher::Mpich);
    assert_eq!(name(&merged(&STEP, &HYDRA)), Launcher::Mpich);
    // torchrun started by srun, once per node.
    assert_eq!(name(&merged(&STEP, &TORCHRUN)), Launcher::Torchrun);
    // srun --mpi=pmi2.
    let pmi2 = merged(&STEP, &[("PMI_RANK", "3"), ("PMI_SIZE", "5"), ("PMI_JOBID", "12.0")]);
    assert_eq!(name(&pmi2), Launcher::Slurm);
    // A wrapper around srun that sets PyTorch's variables, and a launcher of several processes per task.
    let spelt = [("RANK", "3"), ("WORLD_SIZE", "5"), ("MASTER_ADDR", "n02"), ("MASTER_PORT", "1")];
    assert_eq!(name(&merged(&STEP, &spelt)), Launcher::Environment);
    let several = [("RANK", "9"), ("WORLD_SIZE", "10"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")];
    assert_eq!(name(&merged(&merged(&STEP, &spelt), &several)), Launcher::Environment);
}

#[test]
fn launchers_that_contradict_each_other_are_refused_with_both_names() {
    // Exported in the batch script, so that every task inherits rank 0.
    let exported = [("RANK", "0"), ("WORLD_SIZE", "5"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "n02")];
    let exported = merged(&exported, &[("MASTER_PORT", "1"), ("LOCAL_WORLD_SIZE", "2")]);
    refused(
        &merged(&STEP, &exported),
        &Settings::default(),
        &["RANK, WORLD_SIZE", "rank 0 of 5", "Slurm", "rank 3 of 5"],
    );
    let alike = merged(&exported, &[("WORLD_SIZE", "2")]);
    refused(&merged(&OPEN_MPI, &alike), &Settings::default(), &["RANK, WORLD_SIZE", "Open MPI"]);
}
