//! `ddp-run bench train`: throughput of a spec's training steps, where they spend their time, page faults and memory, by
//! number of processes and threads. Each row is a separate run of this binary, in a temporary folder,
//! whose ranks measure themselves (`worker::step_times`).

mod report;

use super::machine::Machine;
use crate::repro::Trainer;
use base::error::{Error, IoContext, Result};
use base::files;
use job::worker::{FAULT, STEP_TIMES, StepTimes};
use launch::StopFlag;
use record::provenance;
use report::{Case, Row, TrainBenchReport};
use std::path::Path;
use train::training::Batching;

/// Steps before those that are measured: allocations, the order of the buckets, a device's kernels.
const WARM_UP: usize = 10;
/// The file in the folder of `--out`.
const FILE: &str = "train.json";

/// A measurement.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The name of the spec, for readers.
    pub name: String,
    /// The resolved spec.
    pub toml: String,
    /// The device that the processes compute on, as shown in the report.
    pub device: String,
    /// The model's tensors are in host memory.
    pub host: bool,
    /// The batching of one process.
    pub batching: Batching,
    /// Optimizer steps to measure in each run, in addition to the warm-up.
    pub steps: usize,
    /// Numbers of processes, and of threads of each.
    pub cases: Vec<(usize, usize)>,
}

/// Measures, passes the table to `print` line by line, and writes `train.json` into `dir`, if given. Call it from the main
/// thread: the runs die with the calling thread.
///
/// # Errors
/// A run that fails, with its exit code; its report goes to standard error, and its folder is kept.
pub fn run(what: &Measurement, dir: Option<&Path>, print: &mut dyn FnMut(&str) -> Result<()>) -> Result<()> {
    if let Some(dir) = dir {
        // Before the measurement, which takes minutes.
        std::fs::create_dir_all(dir).doing("create", dir)?;
        files::replaces_no_other(&dir.join(FILE), &[crate::bench::report::MARK])?;
    }
    let machine = Machine::here();
    let most = what.cases.iter().map(|(world, threads)| world * threads).max().unwrap_or(0);
    let warnings = machine.warnings(most, "compute threads");
    for warning in &warnings {
        status!("warning: {warning}");
    }
    print(&format!("{}\n", report::header(&what.name, &what.device, &machine, what.steps, WARM_UP)))?;
    let mut rows = Vec::new();
    for &(world, threads) in &what.cases {
        let row = measure(what, world, threads)?;
        print(&format!("{}\n", row.line()))?;
        rows.push(row);
    }
    let Some(dir) = dir else { return Ok(()) };
    let report = TrainBenchReport {
        machine,
        command_line: provenance::command_line(),
        spec: what.name.clone(),
        device: what.device.clone(),
        warm_up: WARM_UP,
        warnings,
        rows,
    };
    let path = dir.join(FILE);
    files::replace_json(&path, &report)?;
    print(&format!("\nwrote {}\n", path.display()))
}

/// Trains in a temporary folder.
fn measure(what: &Measurement, world: usize, threads: usize) -> Result<Row> {
    let scratch = files::Temporary::new("ddp-run-bench")?;
    let folder = scratch.path();
    let spec = folder.join("job.toml");
    std::fs::write(&spec, &what.toml).doing("write", &spec)?;
    let sets = overrides(threads, WARM_UP + what.steps);
    let mut trainer = Trainer::new(&spec, &folder.join("run"), world, &StopFlag::default())
        .flags(["--resume", "never", "--max-restarts", "0"])
        .flags(sets.iter().flat_map(|set| ["--set", set]))
        .variable(STEP_TIMES, folder.display());
    // An injected fault concerns the measured run.
    if let Ok(fault) = std::env::var(FAULT) {
        trainer = trainer.variable(FAULT, fault);
    }
    let mut run = trainer.start()?;
    let status = run.watch(|_| Ok(true))?.ok_or_else(|| Error::internal("the run has not ended"))?;
    if !status.success() {
        let error = run.failed(status, &format!("the run with --world {world} --threads {threads}"));
        return Err(scratch.kept_after(error));
    }
    let ranks = StepTimes::of_all(folder, world)?;
    let case = Case { world, threads, global_batch: what.batching.of_world(world).global_batch() };
    Row::new(case, &ranks, WARM_UP, what.host)
        .ok_or_else(|| Error::internal("the run took fewer steps than it was asked for"))
}

/// What differs from a run of the spec: it ends after `steps` steps, and neither evaluates nor saves.
fn overrides(threads: usize, steps: usize) -> Vec<String> {
    vec![
        format!("launch.threads={threads}"),
        format!("train.max_steps={steps}"),
        // More than enough for a data set of one step.
        format!("epochs={steps}"),
        // All micro-batches are whole.
        "dataset.drop_last=true".into(),
        "train.eval_every=0".into(),
        "save_every=\"never\"".into(),
        "checkpoint.best=\"train.loss\"".into(),
        "launch.requeue=false".into(),
    ]
}
