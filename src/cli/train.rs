//! `ddp-run train SPEC`: resolve the plan, show it, start the workers and watch them. Under a launcher that starts every
//! rank (torchrun, srun, mpirun) this process is a worker itself.

use super::spec_args::SpecArgs;
use super::{closing, worker};
use crate::checkpoint::CheckpointStore;
use crate::clusters::slurm::SlurmJob;
use crate::clusters::{self, NodeEnv, Origin};
use crate::comm::{Backend, mpi, nccl};
use crate::device::{self, computes_in};
use crate::error::{Error, ExitCode, Result};
use crate::history::{self, FolderLock, checkpoints};
use crate::launch::logs::LogFormat;
use crate::launch::{JobHandoff, LocalLaunch, Nproc, StopFlag, cores::usable_cores, descriptors, logs};
use crate::nodes::{NodeRange, Nodes, RdzvEndpoint};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::show;
use crate::telemetry::{Before, ProgressMode, Provenance, RunId, provenance};
use crate::worker::{Fault, foresee, keep_kernels};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Worker processes on this machine: a number, `devices` (one per device, else one), `auto` (one per device, else per core), `gpu` or `cpu`
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<Nproc>,
    /// Nodes of the run: a number, or MIN:MAX when nodes may come and go
    #[arg(long, value_name = "N|MIN:MAX", env = "DDP_RUN_NNODES")]
    pub nnodes: Option<NodeRange>,
    /// This node's number; node 0 is where the nodes meet, and where checkpoints are written
    #[arg(long, value_name = "N", env = "DDP_RUN_NODE_RANK")]
    pub node_rank: Option<usize>,
    /// Where the nodes meet: HOST:PORT, tcp://HOST:PORT or file:///SHARED/PATH
    #[arg(long, value_name = "ENDPOINT", env = "DDP_RUN_RDZV_ENDPOINT")]
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// Restarts after failures, without progress in between
    #[arg(long, value_name = "N")]
    pub max_restarts: Option<u32>,
    /// Where the run begins: `auto` (its newest good checkpoint), `never` (from the start), or a checkpoint or run folder; a run that
    /// its launcher starts again goes on (DDP_RUN_ID names a run where the launcher does not)
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    pub resume: String,
    /// The run's folder [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overrides the spec's device: `auto`, `cpu`, `cuda`, `cuda:N`, `wgpu`, `wgpu:N`
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// How the ranks' logs are written: `text` or `json`
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: String,
    /// How rank 0 shows progress: `auto`, `bar`, `plain` or `none`
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = progress())]
    pub progress: ProgressMode,
}

/// What `--progress` may be.
fn progress() -> impl TypedValueParser<Value = ProgressMode> {
    let names = PossibleValuesParser::new(ProgressMode::CHOICES.map(|(name, _)| name));
    names.map(|name| ProgressMode::named(&name).unwrap_or_default())
}

impl Args {
    /// What concerns who this process is.
    fn asked(&self) -> clusters::Asked {
        clusters::Asked {
            node_rank: self.node_rank,
            nnodes: self.nnodes,
            rdzv_endpoint: self.rdzv_endpoint.clone(),
            starter: clusters::starter_pid(),
        }
    }

    /// The spec with every edit, those of flags that stand for a key among them, and of what a launcher of nodes says instead.
    fn spec(&self, origin: &Origin, nproc: Option<Nproc>) -> SpecArgs {
        let mut spec = self.spec.clone();
        let (nnodes, endpoint) = match origin {
            Origin::Node(node) => (node.nnodes, &node.endpoint),
            Origin::Own | Origin::Worker(_) => (self.nnodes, &self.rdzv_endpoint),
        };
        let mut set = |key: &str, value: Option<String>| {
            spec.overrides.set.extend(value.map(|value| format!("{key}={value}")));
        };
        set("device", self.device.as_ref().map(|d| format!("{d:?}")));
        set("launch.nnodes", nnodes.map(|n| if n.is_elastic() { format!("\"{n}\"") } else { n.to_string() }));
        set("launch.rdzv_endpoint", endpoint.as_ref().map(|e| format!("{:?}", e.to_string())));
        set("launch.nproc_per_node", nproc.map(|n| n.to_string()));
        set("launch.max_restarts", self.max_restarts.map(|n| n.to_string()));
        spec
    }
}

pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let format: LogFormat =
        args.log_format.parse().map_err(|e| Error::usage(format!("--log-format: {e}")))?;
    let origin = clusters::detect(&|name| std::env::var(name).ok(), &args.asked())?;
    let nproc = match args.nproc_per_node {
        Some(n) => Some(n),
        None => origin.nproc(&|name| std::env::var(name).ok())?,
    };
    let request = WorldRequest {
        world_size: match &origin {
            Origin::Worker(worker) => Some(worker.place.world_size),
            Origin::Own | Origin::Node(_) => None,
        },
        cores: usable_cores(),
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = args.spec(&origin, nproc).plan(registry, request)?;
    if plan.nodes.nnodes == NodeRange::ONE {
        origin.is_alone(plan.says("launch.nnodes"), plan.nodes.rdzv_endpoint.as_ref())?;
    }
    if let Origin::Worker(worker) = &origin {
        // Whatever asks a device for its name opens it.
        let device = device::of_rank(plan.device, worker.place.local_rank);
        keep_kernels(device, plan.precision, &worker.place.local_rank.to_string());
    }
    if plan.backend != Backend::Mpi {
        let local = match &origin {
            Origin::Worker(worker) => worker.place.local_world_size,
            Origin::Own | Origin::Node(_) => plan.world.nproc_per_node,
        };
        descriptors::suffice_for(plan.distributed.gloo().connections(plan.world.world_size, local))?;
    }
    available(&plan)?;
    let local = match &origin {
        // A launcher may show each rank a device of its own only.
        Origin::Worker(_) if device::count(plan.device) == 1 => 1,
        Origin::Worker(worker) => worker.place.local_world_size,
        Origin::Own | Origin::Node(_) => {
            // The plan takes one process for `gpu` where there is none.
            plan.launch.nproc_per_node.resolve(usable_cores(), || device::count(plan.device))?;
            plan.world.nproc_per_node
        }
    };
    plan.devices_suffice(local, device::count(plan.device))?;
    computes_in(plan.precision, device::of_rank(plan.device, 0))?;
    // The workers read it again; here it is refused before anything starts.
    Fault::from_env(&|name| std::env::var(name).ok(), plan.world.world_size)?;
    let out_dir = match &args.out {
        Some(folder) => folder.clone(),
        None => own_folder(&plan.name)?,
    };
    let job = JobHandoff {
        spec_name: args.spec.spec.display().to_string(),
        job_toml: plan.to_toml(),
        out_dir,
        resume: args.resume.clone(),
        provenance: None,
        log_format: format,
        progress: args.progress,
    };
    let node = match origin {
        Origin::Worker(worker) => return worker::run_external(worker, &plan, job, stop),
        Origin::Node(node) => Some(node),
        Origin::Own => None,
    };
    logs::init_terminal(format)?;
    if plan.backend == Backend::Mpi {
        return Err(Error::usage(
            "backend `mpi`: the processes of an MPI job are started by MPI's own launcher",
        )
        .hint(format!("`mpirun -n {} ddp-run SPEC.toml`, or `srun`", plan.world.world_size)));
    }
    supervise(args, node.as_ref(), &plan, job, stop)
}

/// `runs/<name>`.
///
/// # Errors
/// It holds a run of another name (78): what was set aside of `x` is in `runs/x.1`, and a spec may be called `x.1`.
fn own_folder(name: &str) -> Result<PathBuf> {
    let folder = Path::new("runs").join(name);
    let there = provenance::read(&folder.join("run.json")).ok().map(|file| file.latest.name);
    match there.filter(|there| there != name) {
        None => Ok(folder),
        Some(other) => {
            Err(Error::spec(format!("{} holds a run of `{}`", folder.display(), show::name(&other)))
                .hint(format!("choose another `name` than `{name}`, or where to write with `--out DIR`")))
        }
    }
}

/// The run folder's lock, the plan on the terminal, then the workers. What belongs to the run as a whole is node 0's.
fn supervise(
    args: &Args,
    node: Option<&NodeEnv>,
    plan: &Plan,
    mut job: JobHandoff,
    stop: &StopFlag,
) -> Result<ExitCode> {
    let node_rank = node.map(|n| n.node_rank).or(args.node_rank);
    let launcher = node.map_or("ddp-run", |n| n.launcher.name());
    let first = node_rank == Some(0) || plan.nodes.nnodes == NodeRange::ONE;
    // Nodes may share the folder.
    let lock = match first && !stop.requested() {
        true => {
            let run = clusters::run_id(&|name| std::env::var(name).ok())?;
            let patience = *plan.distributed.init_timeout;
            let lock = FolderLock::take(&job.out_dir, &run, patience, &|| stop.requested())?;
            job.provenance = Some(provenance_of(plan, &job, launcher, run));
            lock
        }
        false => None,
    };
    if stop.requested() {
        say!("stopped on request before anything began");
        worker::requeue_on_stop(plan, first).iter().for_each(SlurmJob::requeue_and_say_so);
        return Ok(ExitCode::Stopped);
    }
    let _lock = lock;
    if first {
        crate::say::put(foreseen(plan, &job).text().into_bytes());
    }
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, job)?;
    launch.threads_per_worker = plan.launch.threads;
    launch.policy.stop_deadline = Some(*plan.checkpoint.grace);
    launch.stop = stop.clone();
    let nodes = Nodes {
        range: plan.nodes.nnodes,
        node_rank,
        endpoint: plan.nodes.rdzv_endpoint.clone(),
        bind: plan.nodes.bind,
        interface: plan.distributed.gloo().address()?,
        key: if plan.nodes.nnodes.max > 1 { Some(clusters::key_of_environment()?) } else { None },
        max_restarts: plan.nodes.max_restarts,
        join: *plan.distributed.init_timeout,
        rejoin: *plan.nodes.rejoin_timeout,
        grace: *plan.checkpoint.grace,
        plan_hash: plan.hash.clone(),
        newest_checkpoint: newest_step,
        ..Nodes::default()
    };
    let (job, before) = (launch.job.clone(), Before::of(&launch.job.out_dir));
    let found = newest_step(&job);
    let ended = nodes.run(launch);
    if first {
        let (code, reason) = match &ended {
            Ok(outcome) if outcome.code == ExitCode::Stopped => (outcome.code, "stopped"),
            Ok(outcome) => (outcome.code, "done"),
            Err(e) => (e.code, e.message.lines().next().unwrap_or_default()),
        };
        if let Err(e) = before.conclude(&job.out_dir, code as u8, reason) {
            tracing::warn!("the run's end is not in its metrics: {}", e.message);
        }
    }
    let may_go_on = [ExitCode::WorkerFailed, ExitCode::Collective, ExitCode::Rendezvous];
    let outcome = ended.map_err(|e| match e.hint.is_none() && first && may_go_on.contains(&e.code) {
        true => e.hint(closing::saved(found, newest_step(&job), &job.resume)),
        false => e,
    })?;
    if outcome.code == ExitCode::Stopped {
        match first {
            true => {
                say!("stopped on request; {}", closing::saved(found, newest_step(&job), &job.resume))
            }
            // What is saved, node 0 knows.
            false => say!("stopped on request"),
        }
        worker::requeue_on_stop(plan, first).iter().for_each(SlurmJob::requeue_and_say_so);
    }
    Ok(outcome.code)
}

/// The plan as this start will carry it out.
pub(super) fn foreseen(plan: &Plan, job: &JobHandoff) -> Plan {
    let resume = if newest_step(job).is_some() { "auto" } else { &job.resume };
    foresee(plan, resume, &job.out_dir)
}

/// The step that workers started again would go on from. By name only: whether it can be read is seen by rank 0, which falls back
/// to an older one.
pub(super) fn newest_step(job: &JobHandoff) -> Option<u64> {
    let run = job.provenance.as_ref().and_then(|start| start.run.as_ref());
    // Before the run has begun, checkpoints that are there are not what it was told to go on from. Who does not write to the folder
    // can't tell.
    let goes_on = job.resume == "auto" || run.is_none_or(|run| history::begun(&job.out_dir, run));
    let newest =
        || CheckpointStore::read_only(checkpoints(&job.out_dir)).list().ok()?.last().map(|entry| entry.step);
    goes_on.then(newest).flatten()
}

/// What this build can run.
pub(super) fn available(plan: &Plan) -> Result<()> {
    device::available(plan.device)?;
    match plan.backend {
        Backend::Auto | Backend::Gloo => Ok(()),
        Backend::Mpi => match mpi::status() {
            Ok(_) => Ok(()),
            Err(why) => Err(Error::unavailable(format!("backend `mpi`: {why}"))
                .hint("`backend = \"gloo\"` needs nothing more, under mpirun as well")),
        },
        Backend::Nccl => {
            let there = nccl::status().and_then(|_| device::cuda_devices());
            let unavailable = |why| Error::unavailable(format!("backend `nccl`: {why}"));
            there.map(drop).map_err(|why| unavailable(why).hint("`backend = \"gloo\"` serves every device"))
        }
    }
}

/// This start, for `run.json`.
pub(super) fn provenance_of(plan: &Plan, job: &JobHandoff, launcher: &str, run: RunId) -> Provenance {
    let source_dir = Path::new(&job.spec_name).parent().filter(|p| !p.as_os_str().is_empty());
    let start = Provenance::gather(provenance::Start {
        name: &plan.name,
        spec_hash: &plan.hash,
        source_dir: source_dir.unwrap_or(Path::new(".")),
        world: plan.world.world_size,
        devices: (0..plan.world.nproc_per_node)
            .map(|local_rank| device::of_rank(plan.device, local_rank).to_string())
            .collect(),
        launcher,
        backend: match plan.backend {
            Backend::Mpi => "mpi",
            _ if worker::averages_by_nccl(plan, device::of_rank(plan.device, 0)) => "nccl",
            _ if plan.world.world_size == 1 => "solo",
            _ => "gloo",
        },
    });
    Provenance { run: Some(run), ..start }
}
