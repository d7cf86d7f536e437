//! Launchers and schedulers: who started this process, and in which role; and how a job is submitted to Slurm
//! ([`slurm`]) and Kubernetes ([`IndexedJob`]). The first matching rule decides:
//!
//! 1. `--node-rank`, or `--rdzv-endpoint` together with `--nnodes` (flags or their variables): this process is the
//!    supervisor of one node, wherever it was started. Not if RANK and WORLD_SIZE are set.
//! 2. RANK and WORLD_SIZE, but not PET_NODE_RANK without LOCAL_RANK (Kubeflow's PyTorchJob sets them for its pods): one
//!    rank, started by torchrun or by any program that sets its variables. They belong to the innermost launcher:
//!    torchrun may itself have been started by `srun` or `mpirun`.
//! 3. Open MPI's OMPI_COMM_WORLD_*, or PMI_* of MPICH and Intel MPI: one rank, even if Slurm's variables say
//!    otherwise, because mpirun starts its daemons with `srun`.
//! 4. A Slurm step of several tasks (`srun -n 4 ddp-run …`): one rank. A step of one task (`srun --pty bash`) and the
//!    batch script count as a shell.
//! 5. PET_NODE_RANK or JOB_COMPLETION_INDEX (Kubeflow, a Kubernetes Indexed Job): the supervisor of one node.
//! 6. None of these: the supervisor of this machine.
//!
//! Launchers that contradict each other are rejected. The ranks meet at `--rdzv-endpoint`, else at MASTER_ADDR and
//! MASTER_PORT, else at the address that the launcher provides. Where that port is not reserved for rank 0, they agree on
//! one (`collectives/rendezvous/ports.rs`).

mod ancestor;
pub mod flags;
mod indexed_job;
mod kubernetes;
mod mpi;
mod run_id;
mod shell;
pub mod slurm;
#[cfg(test)]
mod tests;
mod torchrun;
mod vars;
mod worker;

pub use ancestor::Ancestor;
pub use flags::{LaunchFlags, completed};
pub use indexed_job::{IndexedJob, OF_NAME};
pub use mpi::starter_pid;
pub use run_id::run_id;
pub use shell::quoted;
pub use worker::{WorkerEnv, key_of_environment};

use std::fmt;

use crate::Nproc;
use crate::nodes::{NodeRange, RdzvEndpoint};
use base::display::count;
use base::error::{Error, Result};
use base::named;
use vars::{Vars, vars};

/// The role of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The supervisor of a run on this machine.
    Own,
    /// One rank.
    Worker(WorkerEnv),
    /// The supervisor of one of several nodes.
    Node(NodeEnv),
}

/// This process supervises the ranks of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEnv {
    /// What started this process.
    pub launcher: Launcher,
    /// From 0.
    pub node_rank: usize,
    /// `None` if only the spec may say it.
    pub nnodes: Option<NodeRange>,
    /// Where the supervisors meet; `None` if only the spec may say it.
    pub endpoint: Option<RdzvEndpoint>,
}

named! {
    /// What started this process.
    pub enum Launcher {
        CommandLine = "the command line",
        Torchrun = "torchrun",
        /// RANK and WORLD_SIZE without torchrun's other variables.
        Environment = "RANK and WORLD_SIZE",
        OpenMpi = "Open MPI",
        /// MPICH, Intel MPI and others that use PMI.
        Mpich = "MPICH",
        Slurm = "Slurm",
        Kubernetes = "Kubernetes",
    }
}

impl Launcher {
    /// The variables that identify the launcher.
    pub fn variables(self) -> &'static [&'static str] {
        match self {
            Launcher::CommandLine => {
                &["DDP_RUN_NNODES", "DDP_RUN_NODE_RANK", "DDP_RUN_RDZV_ENDPOINT", "DDP_RUN_ID"]
            }
            Launcher::Torchrun => &["RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"],
            Launcher::Environment => &["RANK", "WORLD_SIZE"],
            Launcher::OpenMpi => &["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"],
            Launcher::Mpich => &["PMI_RANK", "PMI_SIZE"],
            Launcher::Slurm => &["SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"],
            Launcher::Kubernetes => &[
                "JOB_COMPLETION_INDEX",
                "PET_NNODES",
                "PET_NODE_RANK",
                "PET_RDZV_ENDPOINT",
                "PET_MASTER_ADDR",
                "PET_MASTER_PORT",
                "PET_NPROC_PER_NODE",
                "PET_STANDALONE",
                "PET_RDZV_ID",
                "PET_RDZV_BACKEND",
                "PET_RDZV_CONF",
                "PET_MAX_RESTARTS",
                "PET_LOG_DIR",
                "PET_TEE",
                "PET_REDIRECTS",
                "PET_LOCAL_RANKS_FILTER",
            ],
        }
    }
}

/// Settings from flags or the corresponding variables, and data about the process.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// `--node-rank`.
    pub node_rank: Option<usize>,
    /// `--nnodes`.
    pub nnodes: Option<NodeRange>,
    /// `--rdzv-endpoint`, or `--master-addr` and `--master-port`.
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// `--nproc-per-node`.
    pub nproc_per_node: Option<Nproc>,
    /// A run on this machine alone.
    pub standalone: bool,
    /// The process that started the ranks of this machine: [`starter_pid`].
    pub starter: u32,
}

/// A launcher's description of this process.
struct Claim {
    launcher: Launcher,
    rank: usize,
    world: usize,
    /// Rank and number of ranks on this node, if known.
    local: Option<(usize, usize)>,
    /// Rank of this node and number of nodes, if known.
    node: Option<(usize, usize)>,
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.launcher.variables();
        write!(f, "{} ({}) says rank {} of {}", self.launcher.name(), names.join(", "), self.rank, self.world)
    }
}

/// Determines the role of this process from the environment, `get`.
///
/// Errors (exit 2): inconsistent or unreadable variables, and launchers that contradict each other.
pub fn detect(get: &dyn Fn(&str) -> Option<String>, settings: &Settings) -> Result<Origin> {
    let vars = vars(get);
    let environment = torchrun::claim(&vars)?;
    if let Some(rank) = settings.node_rank.filter(|_| environment.is_some()) {
        return Err(Error::usage(format!(
            "--node-rank {rank} makes this process the supervisor of a node, but RANK and WORLD_SIZE make it a rank"
        ))
        .hint("omit --node-rank to run as a rank, or unset the variables to run as a supervisor"));
    }
    if settings.standalone {
        return standalone(&vars, environment);
    }
    let supervises = settings.nnodes.is_some() && settings.rdzv_endpoint.is_some();
    if environment.is_none() && (settings.node_rank.is_some() || supervises) {
        return node_of_flags(&vars, &completed(get, settings)?);
    }
    let mpi = mpi::claim(&vars)?;
    let slurm = slurm::claim(&vars)?;
    match innermost(&vars, environment, mpi, slurm)? {
        Some(claim) => {
            let worker = WorkerEnv::from_vars(&vars, claim, settings.starter)?;
            agrees(&worker, settings)?;
            Ok(Origin::Worker(worker))
        }
        None => {
            let settings = completed(get, settings)?;
            Ok(kubernetes::node(&vars, settings)?.map_or(Origin::Own, Origin::Node))
        }
    }
}

/// Determines the role of a process that starts ranks and is not one itself. Like [`detect`], but refuses a rank of a launcher
/// whatever the flags say, which [`detect`] compares with that launcher.
///
/// # Errors
/// A launcher has started this process as a rank, or its variables are inconsistent (exit 2).
pub fn detect_supervisor(get: &dyn Fn(&str) -> Option<String>, settings: &Settings) -> Result<Origin> {
    let vars = vars(get);
    let environment = torchrun::claim(&vars)?;
    let supervises =
        settings.node_rank.is_some() || settings.nnodes.is_some() && settings.rdzv_endpoint.is_some();
    let claim = match environment.is_none() && supervises {
        true => None,
        false => innermost(&vars, environment, mpi::claim(&vars)?, slurm::claim(&vars)?)?,
    };
    match claim.filter(|claim| !settings.standalone || claim.world > 1) {
        None => detect(get, settings),
        Some(claim) => {
            let names = claim.launcher.variables();
            Err(Error::usage(format!(
                "`launch` starts the ranks itself, but {} make this process rank {} of {}",
                names.join(", "),
                claim.rank,
                claim.world
            ))
            .hint(format!(
                "start it once per node, with --nnodes, --node-rank and --rdzv-endpoint; if the variables are left over: \
                 `env -u {} ddp-run launch …`",
                names.join(" -u ")
            )))
        }
    }
}

impl Origin {
    /// Checks that a run of one node, unless explicitly requested (`said`), is not one node of several. A node rank
    /// or an endpoint indicates several nodes; each of them would otherwise train a separate run.
    ///
    /// Errors (exit 2): there is a node rank, or an endpoint, here or as `endpoint` in the spec.
    pub fn is_alone(&self, said: bool, endpoint: Option<&RdzvEndpoint>) -> Result<()> {
        let given = match self {
            Origin::Worker(_) => return Ok(()),
            Origin::Node(node) => Some(format!("this is node {} ({})", node.node_rank, node.launcher.name())),
            // No other node can reach an address of this machine alone.
            Origin::Own => endpoint
                .filter(|at| !at.is_loopback())
                .map(|at| format!("the endpoint of this run's nodes is {at}")),
        };
        match given.filter(|_| !said) {
            None => Ok(()),
            Some(given) => Err(Error::usage(format!("{given}, but the number of nodes is not set")).hint(
                "set it with `--nnodes N` (or DDP_RUN_NNODES, PET_NNODES, `nnodes` in `[launch]`); `--nnodes 1` trains on this machine only",
            )),
        }
    }
}

/// The one supervisor of a run, unless a launcher has started several processes like this one.
fn standalone(vars: &Vars<'_>, environment: Option<Claim>) -> Result<Origin> {
    match innermost(vars, environment, mpi::claim(vars)?, slurm::claim(vars)?)?
        .filter(|claim| claim.world > 1)
    {
        None => Ok(Origin::Own),
        Some(claim) => Err(Error::usage(format!("--standalone starts all processes of a run, but {claim}"))
            .hint("omit --standalone to run as a rank, or start ddp-run once, without the launcher")),
    }
}

fn node_of_flags(vars: &Vars<'_>, settings: &Settings) -> Result<Origin> {
    let node_rank = match settings.node_rank {
        Some(rank) => Some(rank),
        None => slurm::node_rank(vars)?.or(kubernetes::index(vars)?),
    };
    if settings.nnodes == Some(NodeRange::ONE) && settings.node_rank.unwrap_or(0) == 0 {
        return Ok(Origin::Own);
    }
    let node_rank = node_rank.ok_or_else(|| {
        Error::usage("--nnodes and --rdzv-endpoint are set, but the rank of this node is not")
            .hint("set `--node-rank 0` on the node of the endpoint, and 1, 2, … on the others")
    })?;
    if let Some(nodes) = settings.nnodes.filter(|n| node_rank >= n.max) {
        return Err(Error::usage(format!(
            "--node-rank is {node_rank} and --nnodes is {nodes}; node ranks go from 0 to {}",
            nodes.max - 1
        ))
        .hint("use the same `--nnodes N` on every node, with a different `--node-rank` on each"));
    }
    Ok(Origin::Node(NodeEnv {
        launcher: Launcher::CommandLine,
        node_rank,
        nnodes: settings.nnodes,
        endpoint: settings.rdzv_endpoint.clone(),
    }))
}

/// The claim of the launcher that started this process; the others started that launcher.
fn innermost(
    vars: &Vars<'_>,
    environment: Option<Claim>,
    mpi: Option<Claim>,
    slurm: Option<Claim>,
) -> Result<Option<Claim>> {
    let Some(inner) = environment else { return Ok(mpi.or(slurm)) };
    // A launcher of several processes, started once per node, sets its own variables. RANK and WORLD_SIZE without
    // them may have been exported and inherited by every process.
    let torchrun = inner.launcher == Launcher::Torchrun;
    for outer in [mpi, slurm].into_iter().flatten() {
        let nested = torchrun || inner.world > outer.world && vars.text("LOCAL_RANK").is_some();
        if !nested && (inner.rank, inner.world) != (outer.rank, outer.world) {
            return Err(Error::usage(format!("two launchers contradict each other: {inner}, but {outer}"))
                .hint("unset RANK and WORLD_SIZE, or start the program without the other launcher"));
        }
    }
    Ok(Some(inner))
}

/// `--nnodes` and `--nproc-per-node` must agree with the launcher.
fn agrees(worker: &WorkerEnv, settings: &Settings) -> Result<()> {
    let (nodes, ranks) = (worker.place.nnodes, worker.place.local_world_size);
    if let Some(Nproc::Count(n)) = settings.nproc_per_node.filter(|n| *n != Nproc::Count(ranks)) {
        return Err(Error::usage(format!(
            "--nproc-per-node is {n}, but {} started {} on this node",
            worker.launcher.name(),
            count(ranks, "rank")
        ))
        .hint("omit --nproc-per-node under a launcher that starts every rank, and give the launcher their number; to \
               have ddp-run start the ranks, run it without the launcher"));
    }
    match settings.nnodes {
        Some(n) if !(n.min..=n.max).contains(&nodes) => Err(Error::usage(format!(
            "--nnodes is {n}, but {} started this run on {}",
            worker.launcher.name(),
            count(nodes, "node")
        ))
        .hint("omit --nnodes under a launcher that starts every rank; to have ddp-run supervise each node, start it once \
               per node with --nnodes, --node-rank and --rdzv-endpoint")),
        _ => Ok(()),
    }
}
