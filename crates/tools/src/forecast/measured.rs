//! Measurements that a prediction begins with: files of `ddp-run bench allreduce` and `ddp-run bench train`; runs are read by `run`.

use collectives::DType;
use collectives::gloo::{AlgorithmChoice, Transport};
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
    /// What the measurement warned of.
    pub warnings: Vec<String>,
    /// Cores of the machine that was measured.
    pub cores: Option<usize>,
}

/// The longest all-reduce and step that count as measured, in seconds: a month.
const LONGEST: f64 = 31.0 * 86_400.0;

/// The largest spread that counts as measured, or may be given.
pub(super) const MOST_SPREAD: f64 = 100.0;

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
    #[serde(default)]
    warnings: Vec<String>,
    machine: Option<Machine>,
}

#[derive(Deserialize)]
struct Machine {
    cores: usize,
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
        let AllreduceFile { world, mut rows, limits, warnings, machine } =
            json(path, "`ddp-run bench allreduce`")?;
        // Gradients are f32; types of other sizes would count as other algorithms.
        if rows.iter().any(|row| row.dtype == DType::F32) {
            rows.retain(|row| row.dtype == DType::F32);
        }
        rows.retain(|row| row.seconds() > 0.0 && row.seconds() < LONGEST && row.bytes > 0);
        if rows.is_empty() || world < 2 {
            return Err(format!("{} has no measured all-reduce", path.display()));
        }
        let largest = limits.and_then(|limits| limits.sizes.into_iter().max_by_key(|size| size.bytes));
        let copy =
            largest.map(|size| size.memcpy_one_gbs * 1e9).filter(|rate| rate.is_finite() && *rate > 0.0);
        Ok(Self { world, rows, copy, warnings, cores: machine.map(|machine| machine.cores) })
    }

    /// Whether any of it passed over connections.
    pub fn is_by_tcp(&self) -> bool {
        self.rows.iter().any(|row| row.transport == Transport::Tcp)
    }
}

/// A measured step: the means or medians of one number of processes. Seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Processes, on one node.
    pub world: usize,
    /// Compute threads of each.
    pub threads: usize,
    /// Samples of each process.
    pub samples: f64,
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub update: f64,
    /// How much longer than the median a tenth of the steps takes at least, as a part of the median; known of one process, which
    /// waits for no other.
    pub spread: Option<f64>,
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
    /// They are those of a run, and not of a benchmark.
    pub of_run: bool,
    /// What was measured: a spec or a run.
    pub source: String,
    /// What the measurement warned of.
    pub warnings: Vec<String>,
    /// Cores of the machine that was measured.
    pub cores: Option<usize>,
}

#[derive(Deserialize)]
struct TrainFile {
    device: String,
    #[serde(default)]
    spec: String,
    #[serde(default)]
    warnings: Vec<String>,
    machine: Option<Machine>,
    rows: Vec<TrainRow>,
}

#[derive(Deserialize)]
struct TrainRow {
    world: usize,
    threads: usize,
    global_batch: usize,
    step_ms: f64,
    samples_per_s: Option<f64>,
    p10_samples_per_s: Option<f64>,
    phases: Option<Phases>,
}

#[derive(Deserialize)]
pub(super) struct Phases {
    data: f64,
    pub forward: f64,
    pub backward: f64,
    sync: f64,
    update: f64,
}

/// How the time of a step divides if nothing tells: a backward pass has twice the products of a forward pass.
pub(super) const UNDIVIDED: Phases =
    Phases { data: 0.0, forward: 1.0 / 3.0, backward: 2.0 / 3.0, sync: 0.0, update: 0.0 };

impl Steps {
    /// Reads `train.json`.
    ///
    /// # Errors
    /// Why the file is of no use.
    pub fn of_bench(path: &Path) -> Result<Self, String> {
        let TrainFile { device, spec: source, warnings, machine, rows } =
            json(path, "`ddp-run bench train`")?;
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
                spread: row.samples_per_s.zip(row.p10_samples_per_s).and_then(|(median, p10)| {
                    let spread = median / p10 - 1.0;
                    (row.world == 1 && (0.0..=MOST_SPREAD).contains(&spread)).then_some(spread)
                }),
            }
        };
        let rows: Vec<Step> = rows.into_iter().map(step).filter(is_usable).collect();
        match rows.is_empty() {
            true => Err(format!("{} has no measured step", path.display())),
            false => {
                let cores = machine.map(|machine| machine.cores);
                Ok(Self { rows, device, undivided, saves: None, of_run: false, source, warnings, cores })
            }
        }
    }
}

pub(super) fn is_usable(step: &Step) -> bool {
    step.world > 0
        && step.threads > 0
        && step.samples > 0.0
        && [step.data, step.forward, step.backward, step.update].iter().all(|part| *part >= 0.0)
        && step.compute() > 0.0
        && step.compute() < LONGEST
}

fn json<T: DeserializeOwned>(path: &Path, program: &str) -> Result<T, String> {
    let bytes = base::files::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| format!("{} is not what {program} writes: {e}", path.display()))
}

#[cfg(test)]
#[path = "measured_tests.rs"]
mod tests;
