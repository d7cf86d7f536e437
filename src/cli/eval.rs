//! `ddp-run eval SPEC|RUN`: the metrics of a checkpoint on one split.

use super::eval_classes;
use super::spec_args::SpecArgs;
use base::display;
use base::error::Result;
use base::numbers::metric_words;
use job::registry::Registry;
use job::start::{EvaluationRequest, evaluate, verdict};
use job::worker::{EvaluatedCheckpoint, Evaluation, EvaluationScope, Split};
use launch::{ExitCode, Nproc, StopFlag};
use record::Assertion;
use serde_json::{Value as Json, json};
use spec::did_you_mean;
use std::path::PathBuf;

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

/// Help of the argument.
const SPEC: &str = "The job spec (`-` reads it from standard input), or the folder of a run";

/// Prints the checkpoint and its metrics to standard output; under a launcher, rank 0 does.
///
/// # Errors
/// Exit 74: there is no such checkpoint. Exit 78: the spec is invalid. The error of a rank that fails.
pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let request = EvaluationRequest {
        spec: &args.spec.spec,
        edits: args.spec.overrides.edits(),
        nproc_per_node: args.nproc_per_node,
        checkpoint: args.checkpoint.as_deref(),
        wanted: EvaluationScope { split: args.split, averaged: !args.no_ema, per_class: args.per_class },
    };
    let (code, found) = evaluate(request, registry, stop)?;
    let Some((of, found)) = found else { return Ok(code) };
    found.warnings.iter().for_each(|warning| status!("warning: {warning}"));
    if args.per_class && found.classes.is_none() {
        status!("`{}` has no figures by class: its samples do not have one class each", args.split);
    }
    super::print(&match args.json {
        true => format!("{}\n", json(&found, &of, args.split)),
        false => text(&found, &of, args.split),
    })?;
    verdict(args.assertions.iter().map(|assertion| held(assertion, &found, args.split)))?;
    Ok(ExitCode::Done)
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

fn text(found: &Evaluation, of: &EvaluatedCheckpoint, split: Split) -> String {
    let path = display::message(&of.path.display().to_string()).into_owned();
    let epochs = match (of.epochs, of.steps_in_epoch) {
        (epochs, 0) => display::count(epochs, "epoch"),
        (epochs, steps) => {
            format!("{} and {}", display::count(epochs, "epoch"), display::count(steps, "step"))
        }
    };
    let mut out = format!(
        "{path} (step {}, after {epochs}), on {} of `{split}`\n",
        of.step,
        display::count(found.samples as usize, "sample")
    );
    let shown = |name: &str| display::name(name);
    let width = found.metrics.iter().map(|(name, _)| shown(name).chars().count()).max().unwrap_or(0);
    for (name, value) in &found.metrics {
        out += &format!("  {:width$}  {}\n", shown(name), metric_words(name, *value));
    }
    found.classes.iter().for_each(|classes| out += &eval_classes::table(classes));
    out
}

/// The metrics by name, `n` samples, and of what they are.
fn json(found: &Evaluation, of: &EvaluatedCheckpoint, split: Split) -> Json {
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
