//! Ranks started by `mpirun`: Open MPI through its own variables, MPICH and Intel MPI through those of PMI.

use super::vars::{Vars, inconsistent};
use super::{Claim, Launcher, slurm};
use crate::ProcessStat;
use base::error::{Error, Result};
use sha2::{Digest, Sha256};

/// `None` without the variables of an MPI launcher.
pub(super) fn claim(vars: &Vars<'_>) -> Result<Option<Claim>> {
    let open = open_mpi(vars)?;
    let pmi = pmi(vars)?;
    if let (Some(open), Some(pmi)) = (&open, &pmi)
        && (open.rank, open.world) != (pmi.rank, pmi.world)
    {
        return Err(Error::usage(format!("two launchers contradict each other: {open}, but {pmi}"))
            .hint("start the program with a single mpirun"));
    }
    let claim = open.or(pmi);
    let in_step = slurm::step(vars)?.is_some() || vars.text("RANK").is_some();
    if claim.is_none() && !in_step && vars.text("PMIX_RANK").is_some() {
        return Err(Error::usage("PMIX_RANK is set, but the number of ranks is not")
            .hint("set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each rank"));
    }
    match claim {
        Some(c) if c.rank >= c.world => Err(inconsistent(format!("{c}; ranks start at 0"))),
        claim => Ok(claim),
    }
}

fn open_mpi(vars: &Vars<'_>) -> Result<Option<Claim>> {
    let Some((rank, world)) = vars.pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else {
        return Ok(None);
    };
    // OMPI_COMM_WORLD_NODE_RANK is not the node's rank but another local rank.
    let local = vars.pair("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")?;
    Ok(Some(Claim { launcher: Launcher::OpenMpi, rank, world, local, node: None }))
}

fn pmi(vars: &Vars<'_>) -> Result<Option<Claim>> {
    let Some((rank, world)) = vars.pair("PMI_RANK", "PMI_SIZE")? else { return Ok(None) };
    let local = match vars.pair("MPI_LOCALRANKID", "MPI_LOCALNRANKS")? {
        Some(local) => Some(local),
        None => vars.pair("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE")?,
    };
    // `srun --mpi=pmi2` sets them, too.
    if local.is_none() && slurm::step(vars)?.is_some() {
        return Ok(None);
    }
    Ok(Some(Claim { launcher: Launcher::Mpich, rank, world, local, node: None }))
}

/// The name of one mpirun on this machine: Open MPI's, or the process that started all ranks.
pub(super) fn run_name(vars: &Vars<'_>, starter: u32) -> String {
    vars.text("PMIX_NAMESPACE").unwrap_or_else(|| starter.to_string())
}

/// A port that is the same for all ranks of the mpirun `run`, and mostly differs between runs. In the range of
/// [`slurm::port`].
pub(super) fn port(run: &str) -> u16 {
    let digest = Sha256::digest(run.as_bytes());
    15000 + u16::from_le_bytes([digest[0], digest[1]]) % 16000
}

/// The process that started this machine's ranks: MPICH's proxy if it is an ancestor of this process (with shells in
/// between), else the parent.
pub fn starter_pid() -> u32 {
    let parent = std::os::unix::process::parent_id();
    let proxy = |stat: &ProcessStat| stat.name.starts_with("hydra_pmi_prox");
    ProcessStat::upwards_from(parent).find(proxy).map_or(parent, |stat| stat.pid)
}
