//! One rank started by another launcher: its place, the rendezvous address, and the run's secret.

use std::fmt;

use super::vars::{Vars, inconsistent};
use super::{Claim, Launcher, mpi, slurm};
use crate::nodes::{KeySource, RdzvEndpoint};
use crate::{Endpoint, RankPosition, cores};
use base::error::{Error, Result};
use collectives::launchers::{self, torchrun::has_agent_store};
use collectives::rendezvous::{Ports, Secret};

/// A rank that another launcher started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnv {
    /// What started the rank.
    pub launcher: Launcher,
    /// From the launcher's variables.
    pub place: RankPosition,
    /// How the ranks meet.
    pub rendezvous: Rendezvous,
    /// The source of the run's secret; see [`WorkerEnv::secret`]. `None` without a home folder or a variable for it.
    pub key: Option<KeySource>,
    /// `TORCHELASTIC_RUN_ID`, `slurm-JOB.STEP`, or empty.
    pub run_id: String,
    /// `TORCHELASTIC_RESTART_COUNT` or `SLURM_RESTART_COUNT`, + 1.
    pub attempt: u32,
    /// The CPUs that Slurm assigns to each task (SLURM_CPUS_PER_TASK).
    pub(super) cpus: Option<usize>,
    /// The launcher's name for this node, if it has one.
    node_name: Option<String>,
}

/// The rendezvous address given by the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// There is only one rank.
    Solo,
    /// Rank 0 listens there.
    At { host: String, port: u16 },
    /// Rank 0 is on this host; its port is not reserved.
    Agreed { host: String, ports: Ports },
    /// The launcher does not provide one, so `--rdzv-endpoint` must.
    Unknown { why: String, hint: String },
}

impl WorkerEnv {
    pub(super) fn from_vars(vars: &Vars<'_>, claim: Claim, starter: u32) -> Result<Self> {
        let place = place(&claim)?;
        let step = slurm::step(vars)?;
        let of_slurm = claim.launcher == Launcher::Slurm;
        let run_id = match step {
            Some((job, step)) if of_slurm => format!("slurm-{job}.{step}"),
            _ => vars.text("TORCHELASTIC_RUN_ID").unwrap_or_default(),
        };
        // A requeued batch job also restarts its torchrun and its mpirun.
        let restarts = match claim.launcher {
            Launcher::Torchrun | Launcher::Environment => vars.number::<u32>("TORCHELASTIC_RESTART_COUNT")?,
            _ => vars.number("SLURM_RESTART_COUNT")?,
        };
        let attempt = restarts.unwrap_or(0).saturating_add(1);
        Ok(Self {
            launcher: claim.launcher,
            rendezvous: rendezvous(vars, &claim, &place, &StartIdentity { id: &run_id, attempt, starter })?,
            place,
            key: KeySource::find(vars.get),
            run_id,
            attempt,
            cpus: vars.number("SLURM_CPUS_PER_TASK")?.filter(|n| of_slurm && *n > 0),
            node_name: vars.text("SLURMD_NODENAME").filter(|_| of_slurm),
        })
    }

    /// The number of compute threads, unless the spec says otherwise: the CPUs that Slurm assigns, or this rank's share.
    pub fn threads(&self) -> usize {
        let share = || cores::threads_per_worker(cores::usable_cores(), self.place.local_world_size);
        self.cpus.unwrap_or_else(share)
    }

    /// This rank's endpoint: at `given` (`--rdzv-endpoint` or the spec's), else at the launcher's address.
    ///
    /// Errors (exit 2): there is no address.
    pub fn endpoint(&self, given: Option<&RdzvEndpoint>) -> Result<Endpoint> {
        let at = |host: &str, port| match self.place.rank {
            0 => Endpoint::Listen { host: host.to_owned(), port },
            _ => Endpoint::Connect { host: host.to_owned(), port },
        };
        match (given, &self.rendezvous) {
            (_, Rendezvous::Solo) => Ok(Endpoint::Solo),
            (Some(RdzvEndpoint::Tcp { host, port }), _) => Ok(at(host, *port)),
            (Some(RdzvEndpoint::File(path)), _) => Ok(Endpoint::File { path: path.clone() }),
            (None, Rendezvous::At { host, port }) => Ok(at(host, *port)),
            (None, Rendezvous::Agreed { host, ports }) => {
                Ok(Endpoint::Agreed { host: host.clone(), ports: ports.clone() })
            }
            (None, Rendezvous::Unknown { why, hint }) => Err(Error::usage(why.clone()).hint(hint.clone())),
        }
    }

    /// The secret that authenticates the ranks to each other: HMAC-SHA256 of the endpoint and the run id under the
    /// key in `DDP_RUN_SECRET`, else in the file `DDP_RUN_SECRET_FILE`, else in `~/.config/ddp-run/secret`, which is
    /// created at first use. Nodes that do not share a home folder need one of the variables. All attempts have the
    /// same secret: a process of an earlier attempt is recognised by its generation, and not as unauthenticated.
    pub fn secret(&self, endpoint: &Endpoint) -> Result<Secret> {
        let at = match endpoint {
            Endpoint::Listen { host, port } | Endpoint::Connect { host, port } => format!("{host}:{port}"),
            Endpoint::Agreed { host, ports } if ports.run.is_empty() => format!("{host}:{}", ports.first),
            Endpoint::Agreed { host, ports } => format!("{host}:{} {}", ports.first, ports.run),
            Endpoint::File { path } => path.display().to_string(),
            Endpoint::Inherited { addr, .. } => addr.to_string(),
            Endpoint::Solo => return Ok(Secret::generate()?),
        };
        let key = self.key.as_ref().ok_or_else(no_key)?;
        Ok(key.secret(&format!("ddp-run rendezvous {at} {}", self.run_id))?)
    }
}

/// `torchrun: rank 1 of 4, attempt 2`, `Slurm: job 12.0, task 1 of 4 on node n2`.
impl fmt::Display for WorkerEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankPosition { rank, world_size, .. } = self.place;
        let name = self.launcher.name();
        match self.run_id.strip_prefix("slurm-") {
            Some(job) => write!(f, "{name}: job {job}, task {rank} of {world_size}")?,
            None => write!(f, "{name}: rank {rank} of {world_size}")?,
        }
        if let Some(node) = &self.node_name {
            write!(f, " on node {node}")?;
        }
        if self.attempt > 1 {
            write!(f, ", attempt {}", self.attempt)?;
        }
        Ok(())
    }
}

fn place(claim: &Claim) -> Result<RankPosition> {
    let Claim { rank, world, .. } = *claim;
    let (local_rank, local_world_size) = claim.local.unwrap_or((0, 1));
    if local_rank >= local_world_size || local_world_size > world || local_rank > rank {
        return Err(inconsistent(format!(
            "local rank {local_rank} of {local_world_size} on this node does not fit: {claim}"
        )));
    }
    // Unless the launcher says otherwise, ranks are assigned node by node.
    let even = (rank / local_world_size, world.div_ceil(local_world_size));
    let (node_rank, nnodes) = claim.node.unwrap_or(even);
    Ok(RankPosition { rank, local_rank, world_size: world, local_world_size, node_rank, nnodes })
}

/// What distinguishes this start of the ranks from others.
struct StartIdentity<'a> {
    id: &'a str,
    attempt: u32,
    starter: u32,
}

fn rendezvous(
    vars: &Vars<'_>,
    claim: &Claim,
    place: &RankPosition,
    run: &StartIdentity<'_>,
) -> Result<Rendezvous> {
    if claim.world == 1 {
        return Ok(Rendezvous::Solo);
    }
    let host = vars.text("MASTER_ADDR");
    let (port, chosen) = (launchers::port(vars, "MASTER_PORT")?, launchers::port(vars, "DDP_RUN_PORT")?);
    // torchrun's port is that of its agent's store, or one that was free when it looked.
    let of_torchrun = claim.launcher == Launcher::Torchrun || has_agent_store(vars);
    if let (Some(host), Some(port), None, true) = (&host, port, chosen, of_torchrun) {
        return Ok(Rendezvous::Agreed {
            host: host.clone(),
            ports: Ports::of_torchrun(host, port, has_agent_store(vars), run.id, run.attempt.into()),
        });
    }
    let one_node = place.local_world_size == place.world_size;
    let given = chosen.or(port);
    // The launcher's own port is derived from the run's name; another program may have it.
    let derived = match claim.launcher {
        Launcher::Slurm => slurm::step(vars)?.map(|(job, step)| (slurm::port(job, step), String::new())),
        Launcher::OpenMpi | Launcher::Mpich if one_node => {
            let name = mpi::run_name(vars, run.starter);
            Some((mpi::port(&name), name))
        }
        _ => None,
    };
    let host = match (host, &derived) {
        (None, Some(_)) if one_node => Some("127.0.0.1".to_owned()),
        (None, Some(_)) => Some(slurm::first_host(vars)?),
        (host, _) => host,
    };
    Ok(match (host, given, derived) {
        (Some(host), Some(port), _) => Rendezvous::At { host, port },
        (Some(host), None, Some((first, run))) => {
            Rendezvous::Agreed { host, ports: Ports { store: None, first, run } }
        }
        (Some(_), None, None) => unknown(claim, "MASTER_PORT"),
        (None, ..) => unknown(claim, "MASTER_ADDR"),
    })
}

/// What is missing, and how to provide it.
fn unknown(claim: &Claim, missing: &str) -> Rendezvous {
    let name = claim.launcher.name();
    let (why, hint) = match claim.launcher {
        Launcher::OpenMpi | Launcher::Mpich => {
            let given = match claim.launcher {
                Launcher::OpenMpi => "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29400 …",
                _ => "mpirun -genv MASTER_ADDR HOST -genv MASTER_PORT 29400 …",
            };
            let why = format!(
                "{name} started ranks on several hosts, but the address of rank 0 is unknown: {missing} is not set"
            );
            (why, format!("pass the first host with `{given}` or `--rdzv-endpoint HOST:PORT`"))
        }
        _ => (
            format!("RANK and WORLD_SIZE are set, but {missing} is not"),
            "set MASTER_ADDR and MASTER_PORT, or `--rdzv-endpoint`, to the address of rank 0".to_owned(),
        ),
    };
    Rendezvous::Unknown { why, hint }
}

/// `DDP_RUN_SECRET`, else the file `DDP_RUN_SECRET_FILE`, else the key in the home folder.
pub fn key_of_environment() -> Result<KeySource> {
    KeySource::find(&|name| std::env::var(name).ok()).ok_or_else(no_key)
}

pub(super) fn no_key() -> Error {
    KeySource::missing().into()
}
