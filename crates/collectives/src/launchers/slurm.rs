//! A rank that `srun` started as one of several tasks of a step.

use super::{Launched, hostlist};
use crate::CommError;
use base::variables::Variables;

/// Higher numbers are steps without `srun`: the batch script, an interactive shell, prolog and epilog.
const LAST_STEP: u32 = 0xffff_fff0;
/// The number of the step's tasks.
pub const TASKS: [&str; 3] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
/// The number of tasks on each node, as [`hostlist`] reads it.
pub const TASKS_PER_NODE: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
const NODE_LIST: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];

/// The numbers of the job and of the step in it; `None` outside a step that `srun` started.
///
/// # Errors
/// Variables that are no numbers.
pub fn step<E>(vars: &Variables<'_, E>) -> Result<Option<(u32, u32)>, E> {
    let step = vars.first_number::<u32>(&["SLURM_STEP_ID", "SLURM_STEPID"])?.filter(|s| *s < LAST_STEP);
    let job = vars.first_number::<u32>(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
    Ok(job.zip(step))
}

/// The rank of this process in its step; `None` without SLURM_PROCID.
pub(super) fn rank(
    vars: &Variables<'_, CommError>,
    (job, step): (u32, u32),
) -> Result<Option<Launched>, CommError> {
    let Some(rank) = vars.number::<usize>("SLURM_PROCID")? else { return Ok(None) };
    let world_size = vars.first_number(&TASKS)?;
    let launched = Launched {
        rank,
        world_size: world_size
            .ok_or_else(|| vars.inconsistent("SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"))?,
        local: vars.number::<usize>("SLURM_LOCALID")?.zip(tasks_here(vars)?),
        run_id: format!("slurm-{job}.{step}"),
        restarts: vars.number("SLURM_RESTART_COUNT")?,
    };
    Ok(Some(launched))
}

/// The number of the step's tasks on this machine.
fn tasks_here(vars: &Variables<'_, CommError>) -> Result<Option<usize>, CommError> {
    let (Some(node), Some(text)) = (vars.number::<usize>("SLURM_NODEID")?, vars.first(&TASKS_PER_NODE))
    else {
        return Ok(None);
    };
    match hostlist::tasks_per_node(&text).and_then(|tasks| tasks.get(node).copied()) {
        Some(tasks) => Ok(Some(tasks)),
        None => Err(vars.inconsistent(format!(
            "SLURM_NODEID is {node}, which does not fit SLURM_STEP_TASKS_PER_NODE, `{text}`"
        ))),
    }
}

/// The first host of the step, which runs rank 0.
///
/// # Errors
/// There is no list of hosts, or it can't be read.
pub fn first_host<E>(vars: &Variables<'_, E>) -> Result<String, E> {
    let Some(list) = vars.first(&NODE_LIST) else {
        return Err(vars.inconsistent("neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set"));
    };
    let first = hostlist::hosts(&list).and_then(|hosts| hosts.into_iter().next());
    first.ok_or_else(|| vars.inconsistent(format!("the node list `{list}` can't be read")))
}

/// A port below the range that the system assigns to clients (32768), spread so that consecutive jobs and steps
/// differ: 15000 + (31 x job + step) mod 16000.
pub fn port(job: u32, step: u32) -> u16 {
    15000 + ((u64::from(job) * 31 + u64::from(step)) % 16000) as u16
}
