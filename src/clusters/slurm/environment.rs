//! A step of a Slurm job. `srun` sets SLURM_* for each of its tasks; the batch script has most of them too, with
//! SLURM_PROCID=0, but not SLURM_STEP_ID.

use super::hostlist;
use crate::clusters::vars::{Vars, inconsistent};
use crate::clusters::{Claim, Launcher};
use base::error::{Error, Result};
use base::show::count;

/// Higher numbers are steps without `srun`: the batch script, an interactive shell, prolog and epilog.
const LAST_STEP: u32 = 0xffff_fff0;
const TASKS: [&str; 3] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"];
const NODES: [&str; 2] = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];
const TASKS_PER_NODE: [&str; 2] = ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"];
const NODE_LIST: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];

/// The numbers of the step and the job.
pub fn step(vars: &Vars<'_>) -> Result<Option<(u32, u32)>> {
    let step = vars.first_number::<u32>(&["SLURM_STEP_ID", "SLURM_STEPID"])?.filter(|s| *s < LAST_STEP);
    let job = vars.first_number::<u32>(&["SLURM_JOB_ID", "SLURM_JOBID"])?;
    Ok(step.zip(job).map(|(step, job)| (job, step)))
}

/// `None` outside a step of several tasks.
pub fn claim(vars: &Vars<'_>) -> Result<Option<Claim>> {
    let (Some(_), Some(rank)) = (step(vars)?, vars.number::<usize>("SLURM_PROCID")?) else { return Ok(None) };
    let world = vars.first_number::<usize>(&TASKS)?;
    let world = world.ok_or_else(|| inconsistent("SLURM_PROCID is set, but SLURM_STEP_NUM_TASKS is not"))?;
    if world == 1 {
        return Ok(None);
    }
    if rank >= world {
        return Err(inconsistent(format!("SLURM_PROCID is {rank} and SLURM_STEP_NUM_TASKS is {world}")));
    }
    let node = vars.number("SLURM_NODEID")?.zip(vars.first_number(&NODES)?);
    let local = vars.number::<usize>("SLURM_LOCALID")?.zip(tasks_here(vars, world, node)?);
    Ok(Some(Claim { launcher: Launcher::Slurm, rank, world, local, node }))
}

/// The number of the step's tasks on this node.
fn tasks_here(vars: &Vars<'_>, world: usize, node: Option<(usize, usize)>) -> Result<Option<usize>> {
    let (Some((node, nodes)), Some(text)) = (node, vars.first(&TASKS_PER_NODE)) else {
        return Ok(None);
    };
    let tasks =
        hostlist::tasks_per_node(&text).filter(|t| t.len() == nodes && t.iter().sum::<usize>() == world);
    let tasks = tasks.ok_or_else(|| {
        inconsistent(format!(
            "SLURM_STEP_TASKS_PER_NODE is `{text}`, which does not fit {world} tasks on {nodes} nodes"
        ))
    })?;
    match tasks.get(node) {
        Some(here) => Ok(Some(*here)),
        None => Err(inconsistent(format!("SLURM_NODEID is {node} of {nodes} nodes"))),
    }
}

/// This node's rank within the step, if `srun` started one process per node.
pub fn node_rank(vars: &Vars<'_>) -> Result<Option<usize>> {
    if step(vars)?.is_none() {
        return Ok(None);
    }
    match (vars.first_number::<usize>(&TASKS)?, vars.first_number::<usize>(&NODES)?) {
        (Some(tasks), Some(nodes)) if tasks != nodes => Err(Error::usage(format!(
            "--nnodes and --rdzv-endpoint make ddp-run the supervisor of a node, but srun started it {tasks} times on {}",
            count(nodes, "node")
        ))
        .hint("`srun --ntasks-per-node=1` starts it once per node; without the two flags each task is a rank")),
        _ => vars.number("SLURM_NODEID"),
    }
}

/// The first host of the step, which runs rank 0.
pub fn first_host(vars: &Vars<'_>) -> Result<String> {
    let Some(list) = vars.first(&NODE_LIST) else {
        return Err(inconsistent("neither SLURM_STEP_NODELIST nor SLURM_JOB_NODELIST is set"));
    };
    let hosts = hostlist::hosts(&list).map(Vec::into_iter).and_then(|mut h| h.next());
    hosts.ok_or_else(|| inconsistent(format!("the node list `{list}` can't be read")))
}

/// A port below the range that the system assigns to clients (32768), spread so that consecutive jobs and steps
/// differ: 15000 + (31 x job + step) mod 16000.
pub fn port(job: u32, step: u32) -> u16 {
    15000 + ((u64::from(job) * 31 + u64::from(step)) % 16000) as u16
}
