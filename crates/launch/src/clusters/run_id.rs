//! Identifies the run that this process belongs to. Launchers repeat the same command, which must not count as a new
//! run for `--resume never` and `--resume PATH`.

use super::vars::{Vars, vars};
use base::error::Result;
use record::RunId;

/// The run's identifier, from the environment `get`.
///
/// * `rdzv_id`: `--rdzv-id`, or `PET_RDZV_ID`.
/// * `DDP_RUN_ID`, for systems that provide no identifier (Kubernetes).
/// * torchrun: its `--rdzv-id`; without one, the folder in which this torchrun keeps its attempts.
/// * A Slurm job: its number, and how often it was requeued. Not the step's number: a requeued script may skip steps
///   that are complete.
///
/// Otherwise each start is a new run, with a random identifier.
///
/// # Errors
/// A Slurm variable is not a number (exit 2).
pub fn run_id(get: &dyn Fn(&str) -> Option<String>, rdzv_id: Option<&str>) -> Result<RunId> {
    let vars = vars(get);
    let named = rdzv_id.map(str::to_owned).or_else(|| vars.text("DDP_RUN_ID"));
    let start = match named.or_else(|| of_torchrun(&vars)) {
        Some(name) => name,
        None => RunId::draw()?,
    };
    let of_slurm =
        vars.first_number::<u32>(&["SLURM_JOB_ID", "SLURM_JOBID"])?.map(|job| format!("slurm-{job}"));
    let restarts = match of_slurm {
        Some(_) => "SLURM_RESTART_COUNT",
        None => "TORCHELASTIC_RESTART_COUNT",
    };
    let attempt = vars.number::<u32>(restarts)?.unwrap_or(0).saturating_add(1);
    Ok(RunId { job: of_slurm.unwrap_or_else(|| start.clone()), attempt, start })
}

fn of_torchrun(vars: &Vars<'_>) -> Option<String> {
    let run = vars.text("TORCHELASTIC_RUN_ID")?;
    // torchrun's default, the same for every run.
    if run != "none" {
        return Some(format!("torchrun-{run}"));
    }
    // FOLDER/attempt_N/LOCAL_RANK/error.json; each torchrun creates a FOLDER with a random name.
    let file = vars.text("TORCHELASTIC_ERROR_FILE")?;
    file.rsplit_once("/attempt_").map(|(folder, _)| format!("torchrun-{folder}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id_of(vars: &[(&str, &str)]) -> RunId {
        let get = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        run_id(&get, None).expect("consistent")
    }

    /// Whether the second environment belongs to a repeated start of the first one's run.
    fn again(first: &[(&str, &str)], second: &[(&str, &str)]) -> bool {
        id_of(second).continues(&id_of(first))
    }

    #[test]
    fn every_start_without_a_launcher_is_a_new_run() {
        assert!(!again(&[], &[]));
        let by_hand = [("RANK", "0"), ("WORLD_SIZE", "1")];
        assert!(!again(&by_hand, &by_hand));
    }

    #[test]
    fn ddp_run_id_identifies_the_run_under_any_launcher() {
        let named = |restarts| [("DDP_RUN_ID", "mine"), ("SLURM_JOB_ID", restarts)];
        assert!(again(&named("1"), &named("2")));
        assert!(!again(&named("1"), &[("DDP_RUN_ID", "yours")]));
    }

    #[test]
    fn rdzv_id_identifies_the_run() {
        let with = |id: &str| run_id(&|_| None, Some(id)).expect("consistent");
        assert!(with("a").continues(&with("a")) && !with("b").continues(&with("a")));
    }

    #[test]
    fn a_restart_by_torchrun_has_the_same_run_id() {
        let given = |count| [("TORCHELASTIC_RUN_ID", "abc"), ("TORCHELASTIC_RESTART_COUNT", count)];
        assert!(again(&given("0"), &given("1")));
        // After a change of membership, workers start again without a new restart count.
        assert!(again(&given("0"), &given("0")));
        let none = |file| [("TORCHELASTIC_RUN_ID", "none"), ("TORCHELASTIC_ERROR_FILE", file)];
        let (first, second) =
            ("/tmp/t/none_x1/attempt_0/0/error.json", "/tmp/t/none_x1/attempt_1/0/error.json");
        assert!(again(&none(first), &none(second)));
        assert!(!again(&none(first), &none("/tmp/t/none_y2/attempt_0/0/error.json")));
        assert!(!again(&[("TORCHELASTIC_RUN_ID", "none")], &[("TORCHELASTIC_RUN_ID", "none")]));
    }

    #[test]
    fn a_requeued_slurm_job_is_the_same_run_and_a_second_start_is_not() {
        let step = |step, restarts| {
            [("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", step), ("SLURM_RESTART_COUNT", restarts)]
        };
        assert!(again(&step("0", "0"), &step("0", "1")));
        // A requeued script skips its first step.
        assert!(again(&step("1", "0"), &step("0", "1")));
        assert!(!again(&step("0", "0"), &step("1", "0")));
        // mpirun, or ddp-run itself, in a batch script, and in the shell of an allocation.
        let batch = |restarts| [("SLURM_JOB_ID", "12"), ("SLURM_RESTART_COUNT", restarts)];
        assert!(again(&batch("0"), &batch("1")));
        assert!(!again(&[("SLURM_JOB_ID", "12")], &[("SLURM_JOB_ID", "12")]));
        // A separate torchrun in each attempt.
        let nested = |id, restarts| {
            [("TORCHELASTIC_RUN_ID", id), ("SLURM_JOB_ID", "7"), ("SLURM_RESTART_COUNT", restarts)]
        };
        assert!(again(&nested("x", "0"), &nested("x", "0")));
        assert!(again(&nested("x", "0"), &nested("y", "1")));
        assert!(!again(&nested("x", "0"), &nested("y", "0")));
    }
}
