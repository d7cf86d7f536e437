//! Measurements that a prediction begins with: files of `ddp-run bench allreduce` and `ddp-run bench train`, and runs.

use crate::comm::DType;
use crate::comm::gloo::{AlgorithmChoice, Transport};
use crate::telemetry::{Event, RankTimes, for_each_event, provenance};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::path::Path;

/// `allreduce.json`, as far as it is read.
#[derive(Clone, Debug)]
pub struct Allreduce {
    pub world: usize,
    /// At least one; their times are above 0.
    pub rows: Vec<AllreduceRow>,
    /// Bytes per second that one thread copies.
    pub copy: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct AllreduceRow {
    pub bytes: usize,
    pub algorithm: AlgorithmChoice,
    pub transport: Transport,
    pub dtype: DType,
    pub median_us: f64,
}

impl AllreduceRow {
    pub fn seconds(&self) -> f64 {
        self.median_us * 1e-6
    }
}

#[derive(Deserialize)]
struct AllreduceFile {
    world: usize,
    rows: Vec<AllreduceRow>,
    limits: Option<Limits>,
}

#[derive(Deserialize)]
struct Limits {
    sizes: Vec<SizeLimits>,
}

#[derive(Deserialize)]
struct SizeLimits {
    bytes: usize,
    memcpy_one_gbs: f64,
}

impl Allreduce {
    /// # Errors
    /// Why the file is of no use.
    pub fn read(path: &Path) -> Result<Self, String> {
        let AllreduceFile { world, mut rows, limits } = json(path, "`ddp-run bench allreduce`")?;
        // Gradients are f32; types of other sizes would count as other algorithms.
        if rows.iter().any(|row| row.dtype == DType::F32) {
            rows.retain(|row| row.dtype == DType::F32);
        }
        rows.retain(|row| row.median_us.is_finite() && row.median_us > 0.0 && row.bytes > 0);
        if rows.is_empty() || world < 2 {
            return Err(format!("{} has no measured all-reduce", path.display()));
        }
        let largest = limits.and_then(|limits| limits.sizes.into_iter().max_by_key(|size| size.bytes));
        let copy =
            largest.map(|size| size.memcpy_one_gbs * 1e9).filter(|rate| rate.is_finite() && *rate > 0.0);
        Ok(Self { world, rows, copy })
    }
}

/// A measured step: the means or medians of one number of processes. Seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Processes; on as few nodes of the cluster as have room for them.
    pub world: usize,
    /// Compute threads of each.
    pub threads: usize,
    /// Samples of each process.
    pub samples: f64,
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub update: f64,
}

impl Step {
    /// All but communication.
    pub fn compute(&self) -> f64 {
        self.data + self.forward + self.backward + self.update
    }
}

/// Measured checkpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Saves {
    /// Bytes per second, written beside training.
    pub write: f64,
    /// Bytes per second while the step waits.
    pub copy: Option<f64>,
}

/// Measured steps of a job, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    pub rows: Vec<Step>,
    /// `cpu`, `cuda:0` …
    pub device: String,
    /// Times of the phases were not measured: the host does not wait for them.
    pub undivided: bool,
    pub saves: Option<Saves>,
}

#[derive(Deserialize)]
struct TrainFile {
    device: String,
    rows: Vec<TrainRow>,
}

#[derive(Deserialize)]
struct TrainRow {
    world: usize,
    threads: usize,
    global_batch: usize,
    step_ms: f64,
    phases: Option<Phases>,
}

#[derive(Deserialize)]
struct Phases {
    data: f64,
    forward: f64,
    backward: f64,
    sync: f64,
    update: f64,
}

/// How the time of a step divides if nothing tells: a backward pass has twice the products of a forward pass.
const UNDIVIDED: Phases =
    Phases { data: 0.0, forward: 1.0 / 3.0, backward: 2.0 / 3.0, sync: 0.0, update: 0.0 };

impl Steps {
    /// Reads `train.json`.
    ///
    /// # Errors
    /// Why the file is of no use.
    pub fn of_bench(path: &Path) -> Result<Self, String> {
        let TrainFile { device, rows } = json(path, "`ddp-run bench train`")?;
        let undivided = rows.iter().any(|row| row.phases.is_none());
        let step = |row: TrainRow| {
            let seconds = row.step_ms * 1e-3;
            // Shares of the sum of all steps, of the time of the median step.
            let phases = row.phases.unwrap_or(UNDIVIDED);
            let shares = phases.data + phases.forward + phases.backward + phases.sync + phases.update;
            let of = |share: f64| if shares > 0.0 { seconds * share / shares } else { 0.0 };
            Step {
                world: row.world,
                threads: row.threads,
                samples: row.global_batch as f64 / row.world.max(1) as f64,
                data: of(phases.data),
                forward: of(phases.forward),
                backward: of(phases.backward),
                update: of(phases.update),
            }
        };
        let rows: Vec<Step> = rows.into_iter().map(step).filter(is_usable).collect();
        match rows.is_empty() {
            true => Err(format!("{} has no measured step", path.display())),
            false => Ok(Self { rows, device, undivided, saves: None }),
        }
    }

    /// Reads the `times` of a run's step events, of its last number of processes and without the first event, and its
    /// checkpoints.
    ///
    /// # Errors
    /// Why the run is of no use.
    pub fn of_run(folder: &Path) -> Result<Self, String> {
        let shown = folder.display();
        let start = provenance::read(&folder.join("run.json")).map_err(|e| e.message)?.latest;
        let spec = std::fs::read_to_string(folder.join("job.toml"));
        let spec: toml::Table = (spec.map_err(|e| format!("cannot read the job.toml of {shown}: {e}"))?)
            .parse()
            .map_err(|_| format!("the job.toml of {shown} is not TOML"))?;
        let integer = |table: Option<&str>, key: &str| {
            let table = table.map_or(Some(&spec), |table| spec.get(table)?.as_table());
            table?.get(key)?.as_integer().filter(|n| *n > 0)
        };
        let (mut windows, mut sums) = (Vec::new(), Sums::default());
        for_each_event(&folder.join("metrics.jsonl"), |event| match event {
            Event::Step(step) => windows.extend(step.times.filter(|t| t.ranks() == start.world)),
            Event::Checkpoint(save) => sums.add(save.bytes as f64, save.seconds, save.held_up_s),
            _ => {}
        })
        .map_err(|e| e.message)?;
        if windows.len() > 1 {
            // The first has allocations and the first order of the buckets.
            windows.remove(0);
        }
        if windows.is_empty() {
            return Err(format!("{shown} has no step with `times` in its metrics.jsonl"));
        }
        let mean = |part: &dyn Fn(&RankTimes) -> f64| {
            windows.iter().map(part).sum::<f64>() / windows.len() as f64 / start.world as f64
        };
        let cores = start.host.cores / start.world.max(1);
        let samples =
            integer(None, "batch_size").unwrap_or(1) * integer(Some("train"), "accumulate").unwrap_or(1);
        let step = Step {
            world: start.world,
            threads: integer(Some("launch"), "threads").map_or(cores.max(1), |n| n as usize),
            samples: samples as f64,
            data: mean(&|t| t.data.iter().sum()),
            forward: mean(&|t| t.forward.iter().sum()),
            backward: mean(&|t| t.backward.iter().sum()),
            update: mean(&|t| t.optimizer.iter().sum()),
        };
        if !is_usable(&step) {
            return Err(format!("the steps of {shown} took no time"));
        }
        let device = start.devices.first().map_or_else(|| "cpu".to_owned(), Clone::clone);
        Ok(Self { rows: vec![step], undivided: false, device, saves: sums.saves() })
    }
}

fn is_usable(step: &Step) -> bool {
    step.world > 0
        && step.threads > 0
        && step.samples > 0.0
        && step.compute() > 0.0
        && step.compute().is_finite()
}

/// Of checkpoints.
#[derive(Default)]
struct Sums {
    bytes: f64,
    seconds: f64,
    held_up: f64,
}

impl Sums {
    fn add(&mut self, bytes: f64, seconds: f64, held_up: Option<f64>) {
        self.bytes += bytes;
        self.seconds += seconds;
        self.held_up += held_up.unwrap_or(0.0);
    }

    fn saves(&self) -> Option<Saves> {
        let rate = |seconds: f64| (self.bytes > 0.0 && seconds > 0.0).then(|| self.bytes / seconds);
        Some(Saves { write: rate(self.seconds)?, copy: rate(self.held_up) })
    }
}

fn json<T: DeserializeOwned>(path: &Path, program: &str) -> Result<T, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| format!("{} is not what {program} writes: {e}", path.display()))
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
