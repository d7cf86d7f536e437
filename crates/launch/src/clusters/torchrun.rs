//! torchrun, and other programs that set RANK and WORLD_SIZE for each rank.

use super::vars::{Vars, inconsistent};
use super::{Claim, Launcher};
use base::error::Result;
use collectives::launchers::torchrun::local;

/// `None` if neither RANK nor WORLD_SIZE is set.
pub(super) fn claim(vars: &Vars<'_>) -> Result<Option<Claim>> {
    let torchrun = vars.text("TORCHELASTIC_RUN_ID").is_some();
    // Kubeflow's PyTorchJob counts pods and processes in RANK and WORLD_SIZE, and leaves the processes to torchrun's variables.
    if !torchrun && vars.text("PET_NODE_RANK").is_some() && vars.text("LOCAL_RANK").is_none() {
        return Ok(None);
    }
    let Some((rank, world)) = vars.pair("RANK", "WORLD_SIZE")? else { return Ok(None) };
    if rank >= world {
        let what = format!("RANK is {rank} and WORLD_SIZE is {world}; ranks go from 0 to WORLD_SIZE - 1");
        return Err(inconsistent(what));
    }
    let launcher = if torchrun { Launcher::Torchrun } else { Launcher::Environment };
    Ok(Some(Claim { launcher, rank, world, local: local(vars, rank, world)?, node: node(vars)? }))
}

fn node(vars: &Vars<'_>) -> Result<Option<(usize, usize)>> {
    let (node, nodes) = (vars.number("GROUP_RANK")?, vars.number("GROUP_WORLD_SIZE")?);
    if let (Some(node), Some(nodes)) = (node, nodes)
        && node >= nodes
    {
        return Err(inconsistent(format!("GROUP_RANK is {node} and GROUP_WORLD_SIZE is {nodes}")));
    }
    Ok(node.zip(nodes))
}
