//! What launchers say of a rank in its environment. [`Options::from_env`](crate::Options::from_env) reads it; ddp-run's program
//! uses [`hostlist`], and the public functions of [`slurm`] and [`torchrun`], too.

pub mod hostlist;
pub mod slurm;
#[cfg(test)]
mod tests;
pub mod torchrun;

use crate::rendezvous::{KeySource, Ports, RdzvEndpoint, is_loopback};
use crate::variables::{Variables, variables};
use crate::{CommError, Options};

/// A rank, as its launcher describes it.
struct Launched {
    rank: usize,
    world_size: usize,
    /// Rank and number of ranks on this machine, if known.
    local: Option<(usize, usize)>,
    run_id: String,
    /// How often the run has been restarted.
    restarts: Option<u64>,
}

/// The options of the process whose environment `get` reads.
pub(crate) fn options(get: &dyn Fn(&str) -> Option<String>) -> Result<Options, CommError> {
    let vars = variables(get);
    let (launched, slurm) = match torchrun::rank(&vars)? {
        Some(rank) => (Some(rank), None),
        None => match slurm::step(&vars)? {
            Some(step) => (slurm::rank(&vars, step)?, Some(step)),
            None => (None, None),
        },
    };
    let Launched { rank, world_size, local, run_id, restarts } = launched.ok_or_else(no_launcher)?;
    let mut options = Options::new(rank, world_size);
    if world_size == 0 || rank >= world_size {
        let what = format!("rank {rank} of {world_size}: ranks go from 0 to the world size - 1");
        return Err(vars.inconsistent(what));
    }
    let (local_rank, local_world_size) = local.unwrap_or((0, 1));
    if local_rank >= local_world_size || local_world_size > world_size || local_rank > rank {
        return Err(vars.inconsistent(format!(
            "local rank {local_rank} of {local_world_size} on this machine does not fit rank {rank} of {world_size}"
        )));
    }
    (options.local_rank, options.local_world_size) = (local_rank, local_world_size);
    options.generation = restarts.unwrap_or(0);
    options.key = KeySource::find(get);
    if world_size > 1 {
        where_to_meet(&vars, &mut options, &run_id, slurm)?;
    }
    options.run_id = run_id;
    Ok(options)
}

/// At DDP_RUN_RDZV_ENDPOINT, else at MASTER_ADDR and MASTER_PORT, else on the first host of the Slurm step.
fn where_to_meet(
    vars: &Variables<'_>,
    options: &mut Options,
    run_id: &str,
    slurm: Option<(u32, u32)>,
) -> Result<(), CommError> {
    if let Some(text) = vars.text("DDP_RUN_RDZV_ENDPOINT") {
        let endpoint = text.parse::<RdzvEndpoint>();
        let wrong = |why| CommError::configuration(format!("DDP_RUN_RDZV_ENDPOINT is `{text}`: {why}"));
        let endpoint = endpoint.map_err(wrong)?;
        if matches!(endpoint, RdzvEndpoint::Tcp { port: 0, .. }) {
            return Err(vars.inconsistent(format!(
                "DDP_RUN_RDZV_ENDPOINT is `{text}`; every rank must know the port in advance"
            )));
        }
        options.endpoint = Some(endpoint);
        return Ok(());
    }
    let (given, chosen) = (port(vars, "MASTER_PORT")?, port(vars, "DDP_RUN_PORT")?);
    let host = vars.text("MASTER_ADDR");
    let one_machine = options.local_world_size == options.world_size;
    let host = match (host, &slurm) {
        (None, Some(_)) if one_machine => Some("127.0.0.1".to_owned()),
        (None, Some(_)) => Some(slurm::first_host(vars)?),
        (host, _) => host,
    };
    let searching = match options.rank {
        0 => "the other ranks".to_owned(),
        rank => format!("rank {rank}"),
    };
    let missing = |name: &str| {
        CommError::configuration(format!("{name} is not set, so {searching} cannot find rank 0")).hint(
            "set MASTER_ADDR and MASTER_PORT to the address of rank 0, the same for every rank, or \
             DDP_RUN_RDZV_ENDPOINT to file:///PATH on a file system that all ranks share",
        )
    };
    let host = host.ok_or_else(|| missing("MASTER_ADDR"))?;
    let agreed = match (given, slurm) {
        (Some(port), None) => torchrun::ports(vars, &host, port, run_id, options.generation),
        // The port is derived from the step's name; another program may have it.
        (None, Some((job, step))) => {
            Some(Ports { store: None, first: slurm::port(job, step), run: String::new() })
        }
        _ => None,
    };
    match (chosen.or(given), agreed) {
        (_, Some(ports)) if chosen.is_none() => options.agreed = Some((host, ports)),
        (Some(port), _) => options.endpoint = Some(RdzvEndpoint::Tcp { host, port }),
        (None, _) => return Err(missing("MASTER_PORT")),
    }
    Ok(())
}

/// A port of rank 0.
///
/// # Errors
/// The variable is no port, or 0: every rank must know the port in advance.
pub fn port<E>(vars: &base::variables::Variables<'_, E>, name: &str) -> Result<Option<u16>, E> {
    match vars.number(name)? {
        Some(0) => Err(vars.inconsistent(format!("{name} is 0; every rank must know the port in advance"))),
        port => Ok(port),
    }
}

fn no_launcher() -> CommError {
    CommError::configuration("RANK and WORLD_SIZE are not set: no launcher has started this process").hint(
        "start it with `ddp-run launch --nproc-per-node N -- PROGRAM`, torchrun or srun, or set RANK, WORLD_SIZE, \
         MASTER_ADDR and MASTER_PORT for each process; RANK=0 WORLD_SIZE=1 is a run of one process",
    )
}
