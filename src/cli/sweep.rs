//! `ddp-run sweep SPEC`: several runs of one spec that differ in some of its keys.

use super::runs::TableFormat;
use super::spec_args::SpecArgs;
use base::display::message;
use base::error::Result;
use base::screen::columns_of_output;
use job::registry::Registry;
use launch::{ExitCode, StopFlag};
use std::path::PathBuf;
use tools::runs::ranking;
use tools::sweep::{Flags, json, prepare, run as sweep, text};

/// Run a spec several times with different values of some keys: a grid, random samples, successive halving
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// A key and its values, as in `--grid optimizer.lr=1e-3,3e-4`; every combination is a run; repeatable
    #[arg(long, value_name = "KEY=VALUES")]
    pub grid: Vec<String>,
    /// A key and the distribution of its values: `uniform(0, 0.5)`, `log-uniform(1e-4, 1e-1)` or `choice(sgd, adamw)`; repeatable
    #[arg(long, value_name = "KEY=DISTRIBUTION")]
    pub sample: Vec<String>,
    /// How many samples to draw; without `--sample`, how many combinations of the grid to choose
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub random: Option<u64>,
    /// Seed of the random samples [default: 0]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// The metric that ranks the runs, as in `val.accuracy` [default: checkpoint.best]
    #[arg(long, value_name = "METRIC")]
    pub metric: Option<String>,
    /// Successive halving: all runs begin with this many epochs, and the best of them continue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "min_steps")]
    pub min_epochs: Option<u64>,
    /// Successive halving: all runs begin with this many optimizer steps, and the best of them continue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub min_steps: Option<u64>,
    /// Successive halving: one of ETA runs continues, for ETA times as long [default: 3]
    #[arg(long, value_name = "ETA", value_parser = clap::value_parser!(u64).range(2..=1000))]
    pub eta: Option<u64>,
    /// Runs at the same time, which share the cores, or the CUDA devices [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub parallel: Option<u64>,
    /// Stop all runs when one fails
    #[arg(long)]
    pub fail_fast: bool,
    /// The sweep's folder [default: runs/NAME-sweep]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// List the runs, and start none
    #[arg(long)]
    pub dry_run: bool,
    /// How to print the table at the end
    #[arg(long, value_enum, default_value_t = TableFormat::Table)]
    pub format: TableFormat,
}

impl Args {
    fn flags(&self) -> Flags {
        Flags {
            grid: self.grid.clone(),
            sample: self.sample.clone(),
            random: self.random,
            seed: self.seed,
            metric: self.metric.clone(),
            min_epochs: self.min_epochs,
            min_steps: self.min_steps,
            eta: self.eta,
            parallel: self.parallel.map(|n| n as usize),
            fail_fast: self.fail_fast,
        }
    }
}

pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let edits = args.spec.overrides.edits();
    let prepared = prepare(&args.spec.spec, &edits, &args.flags(), args.out.clone(), registry)?;
    prepared.warnings().iter().for_each(|warning| status!("warning: {}", message(warning)));
    if args.dry_run {
        super::print(&message(&prepared.listing()))?;
        return Ok(ExitCode::Done);
    }
    let outcome = sweep(prepared, &ranking(registry), stop)?;
    match args.format {
        TableFormat::Table => super::print(&text(&outcome, columns_of_output()))?,
        TableFormat::Json => super::print(&format!("{:#}\n", json(&outcome)))?,
    }
    outcome.verdict()
}
