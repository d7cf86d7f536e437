//! `ddp-run eval SPEC|RUN`: the metrics of a checkpoint on one split, computed in this process.

use super::spec_args::SpecArgs;
use crate::checkpoint::{CheckpointStore, Loaded, load_any};
use crate::comm::SoloGroup;
use crate::device::of_rank;
use crate::error::{Error, Result};
use crate::history::checkpoints;
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::show;
use crate::spec::did_you_mean;
use crate::start::{available, verdict};
use crate::telemetry::{Assertion, metric_words};
use crate::worker::{Evaluation, Split, evaluate, keep_kernels};
use serde_json::{Value as Json, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    // SPEC may be a run's folder, too.
    #[command(flatten)]
    pub spec: SpecArgs,
    /// A checkpoint or a run folder; or `best` (by `checkpoint.best`) or `last`, of the run [default: last]
    #[arg(long, value_name = "PATH|best|last")]
    pub checkpoint: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Split::Val)]
    pub split: Split,
    /// Evaluate the weights of the last step, not their average (`[ema]`)
    #[arg(long)]
    pub no_ema: bool,
    /// Exit with 1 unless this holds, as in "accuracy >= 0.9" (also <=, >, <); repeatable
    #[arg(long = "assert", value_name = "CONDITION")]
    pub assertions: Vec<Assertion>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints the checkpoint and its metrics to standard output.
///
/// # Errors
/// Exit 74: there is no such checkpoint. Exit 78: the spec is invalid.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let SpecArgs { spec: named, overrides } = &args.spec;
    let spec = if named.is_dir() { &named.join("job.toml") } else { named };
    let plan = overrides.plan(spec, registry, WorldRequest::of(1))?;
    let device = of_rank(plan.device, 0);
    keep_kernels(device, plan.precision, "eval");
    available(&plan)?;
    let run = if named.is_dir() { named.clone() } else { run_folder(spec, &plan) };
    let loaded = find(&plan, &run, args.checkpoint.as_deref())?;
    let group = Arc::new(SoloGroup::default());
    let found = evaluate(&plan, &loaded, args.split, !args.no_ema, device, group)?;
    loaded.warnings.iter().chain(&found.warnings).for_each(|warning| say!("warning: {warning}"));
    super::print(&match args.json {
        true => format!("{}\n", json(&found, &loaded, args.split)),
        false => text(&found, &loaded, args.split),
    })?;
    verdict(args.assertions.iter().map(|assertion| held(assertion, &found, args.split)))
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
    let own = spec.parent().filter(|own| spec.ends_with("job.toml") && of_a_run(own));
    own.map_or_else(|| Path::new("runs").join(&plan.name), Path::to_owned)
}

fn find(plan: &Plan, run: &Path, checkpoint: Option<&Path>) -> Result<Loaded> {
    let (best, last) = (Some(Path::new("best")), Some(Path::new("last")));
    if let Some(path) = checkpoint.filter(|_| checkpoint != best && checkpoint != last) {
        // Its name alone is enough, among the run's.
        let among = checkpoints(run).join(path);
        return load_any(if !path.exists() && among.is_dir() { &among } else { path });
    }
    if !run.exists() {
        return Err(Error::checkpoint(format!("there is no run in {}", run.display())).hint(
            "`ddp-run eval RUN` takes the run's folder in place of a spec; `--checkpoint PATH` names a checkpoint",
        ));
    }
    let store = CheckpointStore::read_only(checkpoints(run));
    match checkpoint == best {
        true => store.best(plan.checkpoint.best),
        false => store
            .latest_verified()?
            .ok_or_else(|| Error::checkpoint(format!("there is no checkpoint in {}", store.dir().display()))),
    }
}

fn text(found: &Evaluation, loaded: &Loaded, split: Split) -> String {
    let state = &loaded.state;
    let path = show::message(&loaded.path.display().to_string()).into_owned();
    let epochs = match (state.epochs_completed, state.step_in_epoch) {
        (epochs, 0) => show::count(epochs, "epoch"),
        (epochs, steps) => {
            format!("{} and {}", show::count(epochs, "epoch"), show::count(steps, "step"))
        }
    };
    let mut out = format!(
        "{path} (step {}, after {epochs}), on {} of `{split}`\n",
        state.global_step,
        show::count(found.samples as usize, "sample")
    );
    let width = found.metrics.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &found.metrics {
        out += &format!("  {name:width$}  {}\n", metric_words(name, *value));
    }
    out
}

/// The metrics by name, `n` samples, and of what they are.
fn json(found: &Evaluation, loaded: &Loaded, split: Split) -> Json {
    let mut all = found.json();
    let of = [
        ("checkpoint", json!(loaded.path.display().to_string())),
        ("step", json!(loaded.state.global_step)),
        ("split", json!(split.to_string())),
    ];
    all.extend(of.map(|(key, value)| (key.to_owned(), value)));
    Json::Object(all)
}
