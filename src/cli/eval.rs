//! `ddp-run eval SPEC|RUN`: the metrics of a checkpoint on one split: in this process, on several ranks that it starts, or as one of the ranks
//! that a launcher has started.

use super::eval_classes;
use super::spec_args::SpecArgs;
use crate::checkpoint::{Loaded, load_any};
use crate::clusters::{self, LaunchFlags, Origin, WorkerEnv};
use crate::comm::{Backend, SoloGroup};
use crate::device::{self, of_rank};
use crate::error::{Error, ExitCode, Result};
use crate::files::{self, Temporary};
use crate::history::checkpoints;
use crate::launch::{EvaluationHandoff, JobHandoff, Nproc, StopFlag};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::show;
use crate::spec::{JobTree, Override, did_you_mean, shown_name};
use crate::start::{self, available, verdict};
use crate::telemetry::{Assertion, ProgressMode, metric_words};
use crate::worker::{
    Evaluated, Evaluation, RankParts, Split, Wanted, chosen, evaluate, evaluate_external, keep_kernels,
};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("spec", |spec| spec.value_name("SPEC|RUN").help(SPEC)))]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// A checkpoint or a run folder; or `best` (by `checkpoint.best`) or `last`, of the run [default: last]
    #[arg(long, value_name = "PATH|best|last")]
    pub checkpoint: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Split::Val)]
    pub split: Split,
    /// Processes on this machine, as of `ddp-run train` [default: the spec's]; the metrics do not depend on it
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<Nproc>,
    /// Evaluate the weights of the last step, not their average (`[ema]`)
    #[arg(long)]
    pub no_ema: bool,
    /// Print precision, recall and F1 of each class as well, and with few classes the confusion matrix
    #[arg(long)]
    pub per_class: bool,
    /// Exit with 1 unless this holds, as in "accuracy >= 0.9" (also <=, >, <); repeatable
    #[arg(long = "assert", value_name = "CONDITION")]
    pub assertions: Vec<Assertion>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Of the argument.
const SPEC: &str = "The job spec (`-` reads it from standard input), or the folder of a run";

/// Prints the checkpoint and its metrics to standard output; under a launcher, rank 0 does.
///
/// # Errors
/// Exit 74: there is no such checkpoint. Exit 78: the spec is invalid. What a rank fails with.
pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let named = &args.spec.spec;
    let spec = if named.is_dir() { &named.join("job.toml") } else { named };
    let (launcher, endpoint) = launcher(args)?;
    let plan = planned(args, spec, registry, launcher.as_ref(), endpoint)?;
    let run = if named.is_dir() { named.clone() } else { run_folder(spec, &plan) };
    let find = || find(&plan, &run, args.checkpoint.as_deref());
    let alone = plan.world.world_size == 1 || (launcher.is_none() && plan.backend == Backend::Mpi);
    let (of, found) = if alone {
        stop.release();
        let loaded = find()?;
        (Evaluated::new(&loaded), evaluated_here(args, &plan, &loaded)?)
    } else {
        // Without its tensors: rank 0 reads them again.
        let first = launcher.as_ref().is_none_or(|worker| worker.place.rank == 0);
        let of = if first { Some(told(find()?)) } else { None };
        let (code, found) = evaluated_on_ranks(args, &plan, of.as_ref(), &run, launcher, stop)?;
        // Rank 0 may have found a newer one.
        match found.and_then(|found| Some((found.of.clone().or(of)?, found))) {
            Some(both) => both,
            None => return Ok(code),
        }
    };
    found.warnings.iter().for_each(|warning| say!("warning: {warning}"));
    if args.per_class && found.classes.is_none() {
        say!("`{}` has no figures by class: its samples do not have one class each", args.split);
    }
    super::print(&match args.json {
        true => format!("{}\n", json(&found, &of, args.split)),
        false => text(&found, &of, args.split),
    })?;
    verdict(args.assertions.iter().map(|assertion| held(assertion, &found, args.split)))?;
    Ok(ExitCode::Done)
}

/// The plan with the processes of the evaluation: the launcher's, or those of one node.
fn planned(
    args: &Args,
    spec: &Path,
    registry: &Registry,
    launcher: Option<&WorkerEnv>,
    endpoint: Option<String>,
) -> Result<Plan> {
    let mut overrides = args.spec.overrides.clone();
    if let Some(endpoint) = endpoint {
        overrides.given.push(Override::Set(format!("launch.rdzv_endpoint={}", toml::Value::from(endpoint))));
    }
    // Once: standard input is over then.
    let tree = JobTree::load(spec, &overrides.edits())?;
    // Before devices are counted: kernels are kept where this process says.
    let first = Plan::resolve(&tree, registry, WorldRequest::of(1))?;
    let local_rank = launcher.map_or(0, |worker| worker.place.local_rank);
    let name = launcher.map_or_else(|| "eval".to_owned(), |_| local_rank.to_string());
    keep_kernels(of_rank(first.device, local_rank), first.precision, &name);
    let mut request = WorldRequest {
        world_size: launcher.map(|worker| worker.place.world_size),
        nnodes: launcher.is_none().then_some(1),
        nproc_per_node: args.nproc_per_node,
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = Plan::resolve(&tree, registry, request)?;
    if launcher.is_some() || plan.world.world_size == 1 {
        return Ok(plan);
    }
    // The machine that the run was on may have had more devices.
    let devices = device::count(plan.device);
    if args.nproc_per_node.is_none() && plan.devices_suffice(plan.world.nproc_per_node, devices).is_err() {
        request.nproc_per_node = Some(Nproc::Count(devices.max(1)));
    }
    let each = Plan::resolve(&tree, registry, request)?.world.nproc_per_node;
    // What the ranks read says the same.
    let sets = ["launch.nnodes=1".to_owned(), format!("launch.nproc_per_node={each}")];
    Ok(Plan::resolve(&tree.edited(&sets.map(Override::Set)), registry, request)?)
}

/// Starts the ranks, or is one of them. What is found is `None` on other ranks than rank 0, and after a stop.
fn evaluated_on_ranks(
    args: &Args,
    plan: &Plan,
    of: Option<&Evaluated>,
    run: &Path,
    launcher: Option<WorkerEnv>,
    stop: &StopFlag,
) -> Result<(ExitCode, Option<Evaluation>)> {
    let scratch = Temporary::new("ddp-run-eval")?;
    let job = job(args, plan, of, run, scratch.path());
    let done = match launcher {
        Some(worker) => evaluate_external(worker, plan, job, stop),
        None => start::evaluate(plan, job, stop),
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

/// The place of this process among the ranks that a launcher has started, `None` without one; and where the environment says that they meet.
/// A launcher that starts a supervisor per node has no ranks: the node evaluates by itself.
///
/// # Errors
/// Flags and variables are inconsistent (exit 2).
fn launcher(args: &Args) -> Result<(Option<WorkerEnv>, Option<String>)> {
    let get = |name: &str| std::env::var(name).ok();
    let flags = LaunchFlags { nproc_per_node: args.nproc_per_node, ..LaunchFlags::default() };
    let settings = flags.settings(&get, clusters::starter_pid())?;
    Ok(match clusters::detect(&get, &settings)? {
        Origin::Own | Origin::Node(_) => (None, None),
        Origin::Worker(worker) => (Some(worker), settings.rdzv_endpoint.map(|at| at.to_string())),
    })
}

fn evaluated_here(args: &Args, plan: &Plan, loaded: &Loaded) -> Result<Evaluation> {
    available(plan)?;
    loaded.warnings.iter().for_each(|warning| say!("warning: {warning}"));
    let Args { split, per_class, .. } = *args;
    let wanted = Wanted { split, averaged: !args.no_ema, per_class };
    let device = of_rank(plan.device, 0);
    evaluate(&RankParts::of(plan), Some(loaded), wanted, device, 0, &SoloGroup::default())
}

/// What is said of a checkpoint, with its warnings told.
fn told(loaded: Loaded) -> Evaluated {
    loaded.warnings.iter().for_each(|warning| say!("warning: {warning}"));
    Evaluated::new(&loaded)
}

/// The file with what rank 0 found.
fn result(folder: &Path) -> PathBuf {
    folder.join("result.json")
}

/// What the ranks are told; `of` on the process that rank 0 is, or is started by.
fn job(args: &Args, plan: &Plan, of: Option<&Evaluated>, run: &Path, folder: &Path) -> JobHandoff {
    let among = among(run, args.checkpoint.as_deref());
    JobHandoff {
        spec_name: shown_name(&args.spec.spec),
        job_toml: plan.to_toml(),
        out_dir: folder.to_owned(),
        resume: "never".to_owned(),
        progress: ProgressMode::None,
        evaluation: Some(EvaluationHandoff {
            checkpoint: of.map_or_else(PathBuf::new, |of| of.path.clone()),
            best: among.as_ref().is_some_and(|(_, best)| *best),
            among: among.map(|(dir, _)| dir),
            split: args.split.to_string(),
            averaged: !args.no_ema,
            per_class: args.per_class,
            result: result(folder),
        }),
        ..JobHandoff::default()
    }
}

/// Whether it holds of the metrics of this split, which may be named before the metric's name.
fn held(assertion: &Assertion, found: &Evaluation, split: Split) -> (bool, String) {
    let name = assertion.metric.strip_prefix(&format!("{split}.")).unwrap_or(&assertion.metric);
    match found.metrics.iter().find(|(of, _)| of == name) {
        Some((_, value)) => assertion.verdict(*value),
        None => {
            let others = did_you_mean(name, found.metrics.iter().map(|(name, _)| name.as_str()));
            (false, format!("{assertion} does not hold: `{name}` is not measured on `{split}`{others}"))
        }
    }
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
        return Err(Error::checkpoint(format!("there is no run in {}", run.display())).hint(
            "`ddp-run eval RUN` takes the run's folder in place of a spec; `--checkpoint PATH` names a checkpoint",
        ));
    }
    let (dir, best) = among(run, checkpoint).unwrap_or_default();
    chosen(plan.checkpoint.best, &dir, best)
}

fn text(found: &Evaluation, of: &Evaluated, split: Split) -> String {
    let path = show::message(&of.path.display().to_string()).into_owned();
    let epochs = match (of.epochs, of.steps_in_epoch) {
        (epochs, 0) => show::count(epochs, "epoch"),
        (epochs, steps) => {
            format!("{} and {}", show::count(epochs, "epoch"), show::count(steps, "step"))
        }
    };
    let mut out = format!(
        "{path} (step {}, after {epochs}), on {} of `{split}`\n",
        of.step,
        show::count(found.samples as usize, "sample")
    );
    let width = found.metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &found.metrics {
        out += &format!("  {name:width$}  {}\n", metric_words(name, *value));
    }
    found.classes.iter().for_each(|classes| out += &eval_classes::table(classes));
    out
}

/// The metrics by name, `n` samples, and of what they are.
fn json(found: &Evaluation, of: &Evaluated, split: Split) -> Json {
    let mut all = found.json();
    let of = [
        ("checkpoint", json!(of.path.display().to_string())),
        ("step", json!(of.step)),
        ("split", json!(split.to_string())),
    ];
    all.extend(of.map(|(key, value)| (key.to_owned(), value)));
    all.extend(found.classes.iter().map(|classes| ("classes".to_owned(), eval_classes::json(classes))));
    Json::Object(all)
}
