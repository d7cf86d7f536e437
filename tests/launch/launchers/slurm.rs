//! `srun -n 2 ddp-run SPEC`: a step of its own job. Batch jobs, preemption and requeues are in `tests/launch/slurm`.

use super::trial::*;
use crate::common::alone;
use std::process::Command;
use std::sync::OnceLock;

/// `None`, with a printed line, where there is no Slurm or none that answers.
fn srun() -> Option<Command> {
    let srun = found("srun")?;
    // A controller that is gone is asked for ten seconds.
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    let answers = ANSWERS.get_or_init(|| {
        let nodes = Command::new("sinfo").args(["-h", "-o", "%t"]).output();
        nodes.is_ok_and(|nodes| nodes.status.success() && !nodes.stdout.is_empty())
    });
    if !answers {
        println!("skipped: Slurm's controller does not answer");
        return None;
    }
    let mut command = Command::new(srun);
    command.args(["--quiet", "--ntasks=2"]);
    Some(command)
}

#[test]
fn the_tasks_of_a_step_train_as_ddp_runs_own() {
    let _alone = alone();
    let Some(mut srun) = srun() else { return };
    let trial = Trial::new();
    // As in a job that Slurm has requeued once.
    srun.env("SLURM_RESTART_COUNT", "1");
    let told = trial.run(srun, &trial.ddp_run(&[]));
    let line = told.lines().find(|l| l.starts_with("launched by Slurm: job "));
    let line = line.unwrap_or_else(|| panic!("{told}"));
    assert!(line.contains(".0, task 0 of 2 on node ") && line.ends_with(", attempt 2"), "{line}");
    assert!(trial.log(1).contains("rank 1/2 attempt 2 generation 2 run slurm-"), "{}", trial.log(1));
    trial.assert_same_bits();
}

#[test]
fn with_a_process_manager_of_mpi_it_is_still_slurm() {
    let _alone = alone();
    let Some(mut srun) = srun() else { return };
    let trial = Trial::new();
    srun.arg("--mpi=pmi2");
    let told = trial.run(srun, &trial.ddp_run(&[]));
    assert!(told.contains("launched by Slurm: job "), "{told}");
    trial.assert_same_bits();
}

/// `srun --pty bash`, or a script's `srun --ntasks=1`: ddp-run starts the ranks.
#[test]
fn a_step_of_one_task_is_a_supervisor() {
    let _alone = alone();
    let Some(mut srun) = srun() else { return };
    let trial = Trial::new();
    srun.args(["--ntasks=1", "--cpus-per-task=1"]);
    trial.run(srun, &trial.ddp_run(&["--nproc-per-node", "2"]));
    assert_eq!(trial.launcher(), "ddp-run");
    trial.assert_same_bits();
}

#[test]
fn a_killed_task_ends_the_others() {
    let _alone = alone();
    let Some(srun) = srun() else { return };
    Trial::new().kill_rank_1(srun, "SLURM_PROCID");
}
