//! `ddp-run train SPEC`: resolve the plan, show it, start the workers and watch them. Under a launcher that starts every
//! rank (torchrun, srun, mpirun) this process is a worker itself.

use super::spec_args::SpecArgs;
use super::{closing, worker};
use crate::checkpoint::CheckpointStore;
use crate::comm::{mpi, nccl};
use crate::device::{self, computes_in};
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::launch::logs::LogFormat;
use crate::launch::{
    JobHandoff, KeySource, LocalLaunch, NodeEnv, NodeRange, Nodes, Nproc, Origin, RdzvEndpoint, SlurmJob,
    StopFlag, cores::usable_cores, descriptors, logs, origin,
};
use crate::plan::{Backend, Plan, WorldRequest};
use crate::registry::Registry;
use crate::telemetry::{Before, ProgressMode, Provenance, provenance};
use crate::worker::{Fault, checkpoints, foresee, keep_kernels};
use std::collections::BTreeMap;
use std::fs::File;
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
    /// Where to go on from: `auto` (the run's newest good checkpoint), `never`, or a checkpoint or run folder
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
    #[arg(long, value_name = "KIND", default_value = "auto", value_parser = ProgressMode::CHOICES.map(|(n, _)| n))]
    pub progress: String,
}

impl Args {
    /// What concerns who this process is.
    fn asked(&self) -> origin::Asked {
        origin::Asked {
            node_rank: self.node_rank,
            nnodes: self.nnodes,
            rdzv_endpoint: self.rdzv_endpoint.clone(),
            starter: origin::starter_pid(),
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
    let origin = origin::detect(&|name| std::env::var(name).ok(), &args.asked())?;
    let nproc = match args.nproc_per_node {
        Some(n) => Some(n),
        None => origin.nproc(&|name| std::env::var(name).ok())?,
    };
    let tree = args.spec(&origin, nproc).load()?;
    let request = WorldRequest {
        world_size: match &origin {
            Origin::Worker(worker) => Some(worker.place.world_size),
            Origin::Own | Origin::Node(_) => None,
        },
        cores: usable_cores(),
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = Plan::resolve(&tree, registry, request)?;
    if plan.launch.nnodes == NodeRange::ONE {
        origin.is_alone(plan.says("launch.nnodes"), plan.launch.rdzv_endpoint.as_ref())?;
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
    let out_dir = args.out.clone().unwrap_or_else(|| Path::new("runs").join(&plan.name));
    let job = JobHandoff {
        spec_name: args.spec.spec.display().to_string(),
        job_toml: plan.to_toml(),
        out_dir,
        resume: args.resume.clone(),
        flags: BTreeMap::from([
            ("log-format".to_owned(), args.log_format.clone()),
            ("progress".to_owned(), args.progress.clone()),
            ("nproc".to_owned(), plan.world.world_size.to_string()),
        ]),
    };
    let node = match origin {
        Origin::Worker(worker) => return worker::run_external(worker, &plan, job, format, stop),
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

/// The run folder, the plan on the terminal, then the workers. What belongs to the run as a whole is node 0's.
fn supervise(
    args: &Args,
    node: Option<&NodeEnv>,
    plan: &Plan,
    job: JobHandoff,
    stop: &StopFlag,
) -> Result<ExitCode> {
    let out_dir = job.out_dir.clone();
    let node_rank = node.map(|n| n.node_rank).or(args.node_rank);
    let launcher = node.map_or("ddp-run", |n| n.launcher.name());
    let first = node_rank.unwrap_or(0) == 0 || plan.launch.nnodes == NodeRange::ONE;
    if stop.requested() {
        say!("stopped on request before anything began");
        worker::requeue_on_stop(plan, first).iter().for_each(SlurmJob::requeue_and_say_so);
        return Ok(ExitCode::Stopped);
    }
    if args.resume == "never" && first {
        set_aside(&out_dir)?;
    }
    std::fs::create_dir_all(&out_dir).doing("create", &out_dir).map_err(unwritable)?;
    // Nodes may share the folder.
    let _lock = if first { Some(lock(&out_dir)?) } else { None };
    if first {
        write_provenance(plan, &job, launcher)?;
        crate::say::put(foresee(plan, &args.resume, &out_dir).text().into_bytes());
    }
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, job)?;
    launch.bind = plan.launch.bind;
    launch.threads_per_worker = plan.launch.threads;
    launch.policy.stop_deadline = Some(plan.checkpoint.grace);
    launch.newest_checkpoint = newest_step;
    launch.stop = stop.clone();
    launch.nodes = Nodes {
        range: plan.launch.nnodes,
        node_rank,
        endpoint: plan.launch.rdzv_endpoint.clone(),
        interface: plan.distributed.gloo().address()?,
        key: if plan.launch.nnodes.max > 1 { Some(KeySource::of_environment()?) } else { None },
        max_restarts: plan.launch.max_restarts,
        join: plan.distributed.init_timeout,
        rejoin: plan.launch.rejoin_timeout,
        grace: plan.checkpoint.grace,
        plan_hash: plan.hash.clone(),
        ..Nodes::default()
    };
    let (found, before) = (newest_step(&out_dir), Before::of(&out_dir));
    let ended = launch.run();
    if first {
        let (code, reason) = match &ended {
            Ok(outcome) if outcome.code == ExitCode::Stopped => (outcome.code, "stopped"),
            Ok(outcome) => (outcome.code, "done"),
            Err(e) => (e.code, e.message.lines().next().unwrap_or_default()),
        };
        if let Err(e) = before.conclude(&out_dir, code as u8, reason) {
            tracing::warn!("the run's end is not in its metrics: {}", e.message);
        }
    }
    let outcome = ended?;
    if outcome.code == ExitCode::Stopped {
        match first {
            true => {
                say!("stopped on request; {}", closing::saved(found, newest_step(&out_dir), &args.resume))
            }
            // What is saved, node 0 knows.
            false => say!("stopped on request"),
        }
        worker::requeue_on_stop(plan, first).iter().for_each(SlurmJob::requeue_and_say_so);
    }
    Ok(outcome.code)
}

/// By name only: whether it can be read is seen by rank 0, which falls back to an older one.
pub(super) fn newest_step(out_dir: &Path) -> Option<u64> {
    CheckpointStore::read_only(checkpoints(out_dir)).list().ok()?.last().map(|entry| entry.step)
}

fn unwritable(e: Error) -> Error {
    Error { code: ExitCode::Checkpoint, ..e }.hint("`--out DIR` writes elsewhere")
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

/// One run at a time writes to a folder.
fn lock(out_dir: &Path) -> Result<File> {
    let path = out_dir.join(".lock");
    let file = File::create(&path).doing("create", &path).map_err(unwritable)?;
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => {
            Err(Error::checkpoint(format!("another run is writing to {}", out_dir.display()))
                .hint("`--out DIR` writes elsewhere"))
        }
        // A file system without locks: nothing to be had.
        _ => Ok(file),
    }
}

/// `--resume never` starts over, but nothing is lost: an earlier run's folder gets a number.
fn set_aside(out_dir: &Path) -> Result<()> {
    if !out_dir.join("checkpoints").exists() && !out_dir.join("metrics.jsonl").exists() {
        return Ok(());
    }
    // Moving the folder of a run that is still writing would tear it apart.
    drop(lock(out_dir)?);
    let name = out_dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let free = (1u32..).map(|n| out_dir.with_file_name(format!("{name}.{n}"))).find(|p| !p.exists());
    let Some(free) = free else { return Ok(()) };
    std::fs::rename(out_dir, &free).doing("move aside", out_dir).map_err(unwritable)?;
    say!("the earlier run is kept in {}", free.display());
    Ok(())
}

/// `job.toml` and `run.json`.
pub(super) fn write_provenance(plan: &Plan, job: &JobHandoff, launcher: &str) -> Result<()> {
    let path = job.out_dir.join("job.toml");
    std::fs::write(&path, &job.job_toml).doing("write", &path).map_err(unwritable)?;
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
    provenance::write(&job.out_dir.join("run.json"), start).map_err(unwritable)
}
