//! One start of a run: checks that everything it needs is available, then runs this process as the node's supervisor
//! or, under a launcher that starts every rank (torchrun, srun, mpirun), as one of the ranks.

use crate::clusters::slurm::SlurmJob;
use crate::clusters::{self, LaunchFlags, NodeEnv, Origin};
use crate::comm::{Backend, mpi, nccl};
use crate::device::{self, supports_precision};
use crate::error::{Error, ExitCode, Result};
use crate::history::FolderLock;
use crate::launch::{JobHandoff, LocalLaunch, StopFlag, cores::usable_cores, descriptors, logs};
use crate::nodes::{Limits, NodeRange, Nodes};
use crate::plan::Plan;
use crate::show;
use crate::telemetry::{Assertion, Before, provenance, read_events};
use crate::worker::{
    Fault, OwnSpec, Resume, StartState, continues_the_run, keep_kernels, newest_step, provenance_of,
    requeue_on_stop, run_external, weights_are_there,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a start is told besides the plan and the job.
pub struct Start {
    /// The run's folder, if it is not the default.
    pub out: Option<PathBuf>,
    pub origin: Origin,
    pub launch: LaunchFlags,
    /// Of the metrics at the end.
    pub assertions: Vec<Assertion>,
}

/// Runs `plan` in the role of this process. `job` is complete except for its folder.
pub fn start(plan: &Plan, mut job: JobHandoff, start: Start, stop: &StopFlag) -> Result<ExitCode> {
    let Start { out, origin, launch, assertions } = start;
    if plan.nodes.nnodes == NodeRange::ONE {
        origin.is_alone(plan.is_set("launch.nnodes"), plan.nodes.rdzv_endpoint.as_ref())?;
    }
    ready(plan, &origin)?;
    job.out_dir = match out {
        Some(folder) => folder,
        None => own_folder(&plan.name)?,
    };
    let node = match origin {
        Origin::Worker(worker) => {
            let (first, folder) = (worker.place.rank == 0, job.out_dir.clone());
            let code = run_external(worker, plan, job, stop)?;
            return if first { asserted(code, &folder, &assertions) } else { Ok(code) };
        }
        Origin::Node(node) => Some(node),
        Origin::Own => None,
    };
    logs::init_terminal(&job)?;
    launch.console().check(plan.world.nproc_per_node)?;
    if plan.backend == Backend::Mpi {
        return Err(Error::usage("backend `mpi`: MPI's launcher must start the processes")
            .hint(format!("`mpirun -n {} ddp-run SPEC.toml`, or `srun`", plan.world.world_size)));
    }
    let folder = job.out_dir.clone();
    let (code, first) = supervise(plan, job, node.as_ref(), &launch, stop)?;
    if first { asserted(code, &folder, &assertions) } else { Ok(code) }
}

/// From a stop signal to SIGKILL for the ranks of an evaluation.
const EVALUATION_STOPS: Duration = Duration::from_secs(5);

/// Runs the ranks of an evaluation on this machine, `job.evaluation`. Their logs are in `job.log_dir`.
///
/// # Errors
/// A rank failed (its report, with its exit code), or could not be started.
pub(crate) fn evaluate(plan: &Plan, job: JobHandoff, stop: &StopFlag) -> Result<ExitCode> {
    ready(plan, &Origin::Own)?;
    logs::init_terminal(&job)?;
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, job)?;
    launch.threads_per_worker = plan.launch.threads;
    // There is nothing to save: ranks end at once, and one that does not must not keep a user waiting.
    launch.policy.stop_deadline = EVALUATION_STOPS;
    launch.policy.saves = false;
    launch.stop = stop.clone();
    let (interface, plan_hash) = (plan.gloo.address()?, plan.hash.clone());
    Nodes { bind: plan.nodes.bind, interface, plan_hash, ..Nodes::default() }.run(launch)
}

/// Checks what is asserted of a run that is done, by its metrics.
///
/// # Errors
/// An assertion does not hold (exit code 1).
fn asserted(code: ExitCode, folder: &Path, assertions: &[Assertion]) -> Result<ExitCode> {
    if code != ExitCode::Done || assertions.is_empty() {
        return Ok(code);
    }
    let path = folder.join("metrics.jsonl");
    // The run may have had nothing to train.
    let events = if path.exists() { read_events(&path)? } else { Vec::new() };
    verdict(assertions.iter().map(|assertion| assertion.verdict_of(&events)))?;
    Ok(code)
}

/// Prints which assertions hold.
///
/// # Errors
/// The lines of those that do not (exit code 1).
pub(crate) fn verdict(verdicts: impl Iterator<Item = (bool, String)>) -> Result<()> {
    let (held, unmet): (Vec<_>, Vec<_>) = verdicts.partition(|(holds, _)| *holds);
    held.iter().for_each(|(_, line)| say!("{line}"));
    match unmet.is_empty() {
        true => Ok(()),
        false => {
            let lines: Vec<String> = unmet.into_iter().map(|(_, line)| line).collect();
            Err(Error::new(ExitCode::Unmet, lines.join("\n")))
        }
    }
}

/// Checks that this machine and this build have what the plan needs.
fn ready(plan: &Plan, origin: &Origin) -> Result<()> {
    if let Origin::Worker(worker) = origin {
        // Querying a device's name opens it.
        let device = device::of_rank(plan.device, worker.place.local_rank);
        keep_kernels(device, plan.precision, &worker.place.local_rank.to_string());
    }
    if plan.backend != Backend::Mpi {
        let local = match origin {
            Origin::Worker(worker) => worker.place.local_world_size,
            Origin::Own | Origin::Node(_) => plan.world.nproc_per_node,
        };
        descriptors::raise_limit_for(plan.gloo.connections(plan.world.world_size, local))?;
    }
    available(plan)?;
    if !matches!(origin, Origin::Worker(_)) {
        plan.dataset.source.check_files().map_err(Error::of_data)?;
    }
    let local = match origin {
        // A launcher may make only one device visible to each rank.
        Origin::Worker(_) if device::count(plan.device) == 1 => 1,
        Origin::Worker(worker) => worker.place.local_world_size,
        Origin::Own | Origin::Node(_) => {
            // For `gpu` without a device, the plan assumes one process.
            plan.launch.nproc_per_node.resolve(usable_cores(), || device::count(plan.device))?;
            plan.world.nproc_per_node
        }
    };
    plan.devices_suffice(local, device::count(plan.device))?;
    supports_precision(plan.precision, device::of_rank(plan.device, 0))?;
    // The workers read it again; an error here prevents the start.
    Fault::from_env(&|name| std::env::var(name).ok(), plan.world.world_size).map(drop)
}

/// Checks that this build can run the plan.
pub(crate) fn available(plan: &Plan) -> Result<()> {
    device::available(plan.device)?;
    match plan.backend {
        Backend::Auto | Backend::Gloo => Ok(()),
        Backend::Mpi => match mpi::status() {
            Ok(_) => Ok(()),
            Err(why) => Err(Error::unavailable(format!("backend `mpi`: {why}"))
                .hint("`backend = \"gloo\"` needs no MPI library, and works under mpirun too")),
        },
        Backend::Nccl => {
            let there = nccl::status().and_then(|_| device::cuda_devices());
            let unavailable = |why| Error::unavailable(format!("backend `nccl`: {why}"));
            there
                .map(drop)
                .map_err(|why| unavailable(why).hint("`backend = \"gloo\"` works with every device"))
        }
    }
}

/// `runs/<name>`.
///
/// # Errors
/// It contains a run with another name (78): runs archived from `x` are in `runs/x.1`, and a spec may be named `x.1`.
fn own_folder(name: &str) -> Result<PathBuf> {
    let folder = Path::new("runs").join(name);
    let there = provenance::read(&folder.join("run.json")).ok().map(|file| file.latest.name);
    match there.filter(|there| there != name) {
        None => Ok(folder),
        Some(other) => {
            Err(Error::spec(format!("{} contains a run of `{}`", folder.display(), show::name(&other)))
                .hint(format!("choose a `name` other than `{name}`, or another folder with `--out DIR`")))
        }
    }
}

/// Locks the run's folder and runs the workers. Node 0 handles what concerns the whole run. Returns whether this is it.
fn supervise(
    plan: &Plan,
    mut job: JobHandoff,
    node: Option<&NodeEnv>,
    flags: &LaunchFlags,
    stop: &StopFlag,
) -> Result<(ExitCode, bool)> {
    let node_rank = node.map(|n| n.node_rank).or(flags.node_rank);
    let launcher = node.map_or("ddp-run", |n| n.launcher.name());
    let first = node_rank == Some(0) || plan.nodes.nnodes == NodeRange::ONE;
    // Nodes may share the folder.
    let _lock = match first && !stop.requested() {
        true => {
            let run = clusters::run_id(&|name| std::env::var(name).ok(), job.rdzv_id.as_deref())?;
            let patience = *plan.distributed.init_timeout;
            let lock = FolderLock::take(&job.out_dir, &run, patience, &|| stop.requested())?;
            job.provenance = Some(provenance_of(plan, &job, launcher, run));
            continues_the_run(OwnSpec::of(plan), &job)?;
            // A run that goes on resumes from its own checkpoints.
            if newest_step(&job).is_none() {
                let resume = Resume::parse(&job.resume);
                resume.is_there()?;
                if !matches!(resume, Resume::From(_)) {
                    weights_are_there(&plan.model)?;
                }
            }
            lock
        }
        false => None,
    };
    if stop.requested() {
        say!("stopped on request before the run started");
        requeue_on_stop(plan.slurm.requeue, first).iter().for_each(SlurmJob::requeue_and_say_so);
        return Ok((ExitCode::Stopped, first));
    }
    let start_state = StartState::of(&job);
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, job)?;
    launch.threads_per_worker = plan.launch.threads;
    launch.policy.stop_deadline = *plan.checkpoint.grace;
    launch.stop = stop.clone();
    launch.console = flags.console();
    let nodes = nodes_of(plan, node_rank, flags)?;
    let (out_dir, before) = (launch.job.out_dir.clone(), Before::of(&launch.job.out_dir));
    let ended = nodes.run(launch);
    if first {
        conclude(&before, &out_dir, &ended);
    }
    let may_go_on = [ExitCode::WorkerFailed, ExitCode::Collective, ExitCode::Rendezvous];
    let code = ended.map_err(|e| match e.hint.is_none() && first && may_go_on.contains(&e.code) {
        true => e.hint(start_state.saved()),
        false => e,
    })?;
    if code == ExitCode::Stopped {
        match first {
            true => say!("stopped on request; {}", start_state.saved()),
            // Only node 0 knows what is saved.
            false => say!("stopped on request"),
        }
        requeue_on_stop(plan.slurm.requeue, first).iter().for_each(SlurmJob::requeue_and_say_so);
    }
    Ok((code, first))
}

fn nodes_of(plan: &Plan, node_rank: Option<usize>, flags: &LaunchFlags) -> Result<Nodes> {
    let limits = Limits::new(plan.nodes.nnodes);
    Ok(Nodes {
        limits: Limits {
            max_restarts: plan.nodes.max_restarts,
            join: *plan.distributed.init_timeout,
            rejoin: *plan.nodes.rejoin_timeout,
            grace: *plan.checkpoint.grace,
            settle: flags.rdzv_conf.and_then(|conf| conf.last_call).unwrap_or(limits.settle),
            ..limits
        },
        node_rank,
        endpoint: plan.nodes.rdzv_endpoint.clone(),
        bind: plan.nodes.bind,
        interface: plan.gloo.address()?,
        key: if plan.nodes.nnodes.max > 1 { Some(clusters::key_of_environment()?) } else { None },
        plan_hash: plan.hash.clone(),
        rdzv_id: flags.rdzv_id.clone().and_then(|id| id.0),
        newest_checkpoint: newest_step,
        ..Nodes::default()
    })
}

/// Writes the run's end to its metrics if no rank has done so.
fn conclude(before: &Before, out_dir: &Path, ended: &Result<ExitCode>) {
    let (code, reason) = match ended {
        Ok(ExitCode::Stopped) => (ExitCode::Stopped, "stopped"),
        Ok(code) => (*code, "done"),
        Err(e) => (e.code, e.message.lines().next().unwrap_or_default()),
    };
    if let Err(e) = before.conclude(out_dir, code as u8, reason) {
        tracing::warn!("cannot write the end of the run to its metrics: {}", e.message);
    }
}
