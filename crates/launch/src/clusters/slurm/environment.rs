//! A step of a Slurm job. `srun` sets SLURM_* for each of its tasks; the batch script has most of them too, with
//! SLURM_PROCID=0, but not SLURM_STEP_ID.

use crate::clusters::vars::{Vars, inconsistent};
use crate::clusters::{Claim, Launcher};
use base::display::count;
use base::error::{Error, Result};
use collectives::launchers::hostlist;
use collectives::launchers::slurm::{TASKS, TASKS_PER_NODE, step};

const NODES: [&str; 2] = ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"];

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
