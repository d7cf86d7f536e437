//! An evaluation of a checkpoint: in this process, on ranks that it starts, or as one of the ranks that a launcher has
//! started.

use super::ready::{available, ready};
use crate::plan::{Plan, Purpose, WorldRequest};
use crate::registry::Registry;
use crate::worker::{
    self, EvaluatedCheckpoint, Evaluation, EvaluationHandoff, EvaluationScope, JobHandoff, RankParts, chosen,
    evaluate_external, keep_kernels,
};
use base::error::{Error, IoContext, Result};
use base::files::{self, Temporary};
use checkpoint::{Loaded, load_any};
use collectives::{Backend, SoloGroup};
use ddp::device::{self, of_rank};
use launch::clusters::{self, LaunchFlags, Origin, WorkerEnv};
use launch::nodes::Nodes;
use launch::{ExitCode, LocalLaunch, Nproc, StopFlag, logs};
use record::ProgressMode;
use record::history::checkpoints;
use spec::{JobTree, Override, shown_name};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to evaluate, and where.
pub struct EvaluationRequest<'a> {
    /// A spec, or the folder of a run.
    pub spec: &'a Path,
    /// Changes of the spec from the command line.
    pub edits: Vec<Override>,
    /// Processes on this machine; by default the spec's.
    pub nproc_per_node: Option<Nproc>,
    /// A path, or `best` or `last` of the run (the default).
    pub checkpoint: Option<&'a Path>,
    /// Split, weights and details of the evaluation.
    pub wanted: EvaluationScope,
}

/// Evaluates in the role of this process. The result is `None` on other ranks than rank 0, and after a stop.
///
/// # Errors
/// Exit 74: there is no such checkpoint. Exit 78: the spec is invalid. The error of a rank that fails.
pub fn evaluate(
    request: EvaluationRequest<'_>,
    registry: &Registry,
    stop: &StopFlag,
) -> Result<(ExitCode, Option<(EvaluatedCheckpoint, Evaluation)>)> {
    let named = request.spec;
    let job = named.join("job.toml");
    let spec = if named.is_dir() { &job } else { named };
    // A spec that the user names may be a pipe.
    if named.is_dir() && job.exists() {
        files::open(&job).doing("read", &job)?;
    }
    let (launcher, endpoint) = launcher(&request)?;
    let plan = planned(&request, spec, registry, launcher.as_ref(), endpoint)?;
    let run = if named.is_dir() { named.to_owned() } else { run_folder(spec, &plan) };
    let find = || {
        let loaded = find(&plan, &run, request.checkpoint)?;
        loaded.warnings.iter().for_each(|warning| status!("warning: {warning}"));
        Ok::<_, Error>(loaded)
    };
    if plan.world.world_size == 1 || (launcher.is_none() && plan.backend == Backend::Mpi) {
        stop.release();
        let loaded = find()?;
        available(&plan)?;
        let (parts, device) = (RankParts::new(&plan), of_rank(plan.device, 0));
        let found =
            worker::evaluate(&parts, Some(&loaded), request.wanted, device, 0, &SoloGroup::default())?;
        return Ok((ExitCode::Done, Some((EvaluatedCheckpoint::new(&loaded), found))));
    }
    // Without its tensors: rank 0 reads them again.
    let first = launcher.as_ref().is_none_or(|worker| worker.place.rank == 0);
    let of = if first { Some(EvaluatedCheckpoint::new(&find()?)) } else { None };
    let (code, found) = on_ranks(&request, &plan, of.as_ref(), &run, launcher, stop)?;
    // Rank 0 may have found a newer one.
    Ok((code, found.and_then(|found| Some((found.of.clone().or(of)?, found)))))
}

/// The plan with the processes of the evaluation: the launcher's, or those of one node.
fn planned(
    request: &EvaluationRequest<'_>,
    spec: &Path,
    registry: &Registry,
    launcher: Option<&WorkerEnv>,
    endpoint: Option<String>,
) -> Result<Plan> {
    let mut edits = request.edits.clone();
    if let Some(endpoint) = endpoint {
        edits.push(Override::Set(format!("launch.rdzv_endpoint={}", toml::Value::from(endpoint))));
    }
    // Once: standard input has ended then.
    let tree = JobTree::load(spec, &edits)?;
    // Before devices are counted: kernels are kept where this process says.
    let first = Plan::resolve(&tree, registry, WorldRequest::new(1).to(Purpose::Use))?;
    let local_rank = launcher.map_or(0, |worker| worker.place.local_rank);
    let name = launcher.map_or_else(|| "eval".to_owned(), |_| local_rank.to_string());
    keep_kernels(of_rank(first.device, local_rank), first.precision, &name);
    let mut world = WorldRequest {
        world_size: launcher.map(|worker| worker.place.world_size),
        nnodes: launcher.is_none().then_some(1),
        nproc_per_node: request.nproc_per_node,
        devices: device::count,
        ..WorldRequest::default().to(Purpose::Use)
    };
    let plan = Plan::resolve(&tree, registry, world)?;
    if launcher.is_some() || plan.world.world_size == 1 {
        return Ok(plan);
    }
    // The machine that the run was on may have had more devices.
    let devices = device::count(plan.device);
    if request.nproc_per_node.is_none() && plan.devices_suffice(plan.world.nproc_per_node, devices).is_err() {
        world.nproc_per_node = Some(Nproc::Count(devices.max(1)));
    }
    let each = Plan::resolve(&tree, registry, world)?.world.nproc_per_node;
    // What the ranks read says the same.
    let sets = ["launch.nnodes=1".to_owned(), format!("launch.nproc_per_node={each}")];
    Ok(Plan::resolve(&tree.edited(&sets.map(Override::Set)), registry, world)?)
}

/// The place of this process among the ranks that a launcher has started, `None` without one; and where the environment says that they meet.
/// A launcher that starts a supervisor per node has no ranks: the node evaluates by itself.
///
/// # Errors
/// Flags and variables are inconsistent (exit 2).
fn launcher(request: &EvaluationRequest<'_>) -> Result<(Option<WorkerEnv>, Option<String>)> {
    let get = |name: &str| std::env::var(name).ok();
    let flags = LaunchFlags { nproc_per_node: request.nproc_per_node, ..LaunchFlags::default() };
    let settings = flags.settings(&get, clusters::starter_pid())?;
    Ok(match clusters::detect(&get, &settings)? {
        Origin::Own | Origin::Node(_) => (None, None),
        Origin::Worker(worker) => (Some(worker), settings.rdzv_endpoint.map(|at| at.to_string())),
    })
}

/// Starts the ranks, or is one of them. The result is `None` on other ranks than rank 0, and after a stop.
fn on_ranks(
    request: &EvaluationRequest<'_>,
    plan: &Plan,
    of: Option<&EvaluatedCheckpoint>,
    run: &Path,
    launcher: Option<WorkerEnv>,
    stop: &StopFlag,
) -> Result<(ExitCode, Option<Evaluation>)> {
    let scratch = Temporary::new("ddp-run-eval")?;
    let job = job(request, plan, of, run, scratch.path());
    let done = match launcher {
        Some(worker) => evaluate_external(worker, plan, job, stop),
        None => supervised(plan, job, stop),
    };
    let code = match done {
        Ok(code) => code,
        Err(error) => {
            // Its report names the logs.
            scratch.keep();
            return Err(error);
        }
    };
    let found = match of {
        Some(_) if code == ExitCode::Done => Some(Evaluation::read(&result(scratch.path()))?),
        _ => None,
    };
    Ok((code, found))
}

/// From a stop signal to SIGKILL for the ranks of an evaluation.
const EVALUATION_STOPS: Duration = Duration::from_secs(5);

/// Runs the ranks of an evaluation on this machine, `job.evaluation`. Their logs are in `job.log_dir`.
///
/// # Errors
/// A rank failed (its report, with its exit code), or could not be started.
fn supervised(plan: &Plan, job: JobHandoff, stop: &StopFlag) -> Result<ExitCode> {
    ready(plan, &Origin::Own)?;
    logs::init_terminal(job.log)?;
    let mut launch = LocalLaunch::new(plan.world.nproc_per_node, &job, job.logs())?;
    launch.threads_per_worker = plan.launch.threads;
    // There is nothing to save: ranks end at once, and one that does not must not keep a user waiting.
    launch.policy.stop_deadline = EVALUATION_STOPS;
    launch.policy.saves = false;
    launch.stop = stop.clone();
    let (interface, plan_hash) = (plan.gloo.address()?, plan.hash.clone());
    Nodes { bind: plan.nodes.bind, interface, plan_hash, ..Nodes::default() }.run(launch)
}

/// The handoff of the ranks. `of` is known to rank 0, or to the supervisor that starts it.
fn job(
    request: &EvaluationRequest<'_>,
    plan: &Plan,
    of: Option<&EvaluatedCheckpoint>,
    run: &Path,
    folder: &Path,
) -> JobHandoff {
    let among = among(run, request.checkpoint);
    JobHandoff {
        spec_name: shown_name(request.spec),
        job_toml: plan.to_toml(),
        out_dir: folder.to_owned(),
        resume: "never".to_owned(),
        progress: ProgressMode::None,
        evaluation: Some(EvaluationHandoff {
            checkpoint: of.map_or_else(PathBuf::new, |of| of.path.clone()),
            best: among.as_ref().is_some_and(|(_, best)| *best),
            among: among.map(|(dir, _)| dir),
            split: request.wanted.split.to_string(),
            averaged: request.wanted.averaged,
            per_class: request.wanted.per_class,
            result: result(folder),
        }),
        ..JobHandoff::default()
    }
}

/// The file with what rank 0 found.
fn result(folder: &Path) -> PathBuf {
    folder.join("result.json")
}

/// The folder of the run whose spec this is: its own if it has one, else that of its name.
fn run_folder(spec: &Path, plan: &Plan) -> PathBuf {
    let of_a_run = |folder: &Path| checkpoints(folder).is_dir() || folder.join("run.json").is_file();
    let own = Some(files::folder(spec)).filter(|own| spec.ends_with("job.toml") && of_a_run(own));
    own.map_or_else(|| Path::new("runs").join(&plan.name), Path::to_owned)
}

/// The folder of the run's checkpoints and whether the best is wanted, if the user named none.
fn among(run: &Path, checkpoint: Option<&Path>) -> Option<(PathBuf, bool)> {
    let best = checkpoint == Some(Path::new("best"));
    (best || checkpoint.is_none_or(|it| it == Path::new("last"))).then(|| (checkpoints(run), best))
}

fn find(plan: &Plan, run: &Path, checkpoint: Option<&Path>) -> Result<Loaded> {
    if let Some(path) = checkpoint.filter(|_| among(run, checkpoint).is_none()) {
        // Its name alone is enough, among the run's.
        let named = checkpoints(run).join(path);
        return load_any(if !path.exists() && named.is_dir() { &named } else { path });
    }
    if !run.exists() {
        return Err(Error::io(format!("there is no run in {}", run.display())).hint(
            "`ddp-run eval RUN` takes the run's folder in place of a spec; `--checkpoint PATH` names a checkpoint",
        ));
    }
    let (dir, best) = among(run, checkpoint).unwrap_or_default();
    chosen(plan.checkpoint.best, &dir, best)
}
