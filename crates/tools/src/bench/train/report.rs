//! The result of `bench train`: a row per number of processes and threads, in a table and in `train.json`.

use crate::bench::machine::Machine;
use crate::bench::measure::nearest_rank;
use job::worker::{StepTime, StepTimes};
use serde::Serialize;

/// What a row measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    pub world: usize,
    /// Compute threads of each process.
    pub threads: usize,
    /// Samples per step over all processes.
    pub global_batch: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainBenchReport {
    pub machine: Machine,
    pub command_line: Vec<String>,
    pub spec: String,
    /// Where the model computes: `cpu`, `cuda:0` …
    pub device: String,
    /// Steps before those that are measured.
    pub warm_up: usize,
    pub warnings: Vec<String>,
    pub rows: Vec<Row>,
}

/// The measured steps of one case. Times of rank 0; memory and page faults of the rank that has most.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    #[serde(flatten)]
    pub case: Case,
    pub steps: usize,
    /// Samples of all processes per second: of the median step, and of the slowest and the fastest tenth.
    pub samples_per_s: f64,
    pub p10_samples_per_s: f64,
    pub p90_samples_per_s: f64,
    pub step_ms: f64,
    /// Shares of the time of all measured steps, 0 to 1; `None` on a device, where the process does not wait for the
    /// phases it starts.
    pub phases: Option<Phases>,
    /// Per step.
    pub page_faults: Option<f64>,
    pub peak_memory_mib: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Phases {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    /// Communication that does not overlap with the backward pass.
    pub sync: f64,
    pub update: f64,
}

impl Row {
    /// `ranks` are the times of all ranks, of which the first `warm_up` steps are left out, and an epoch's last one if it
    /// has fewer micro-batches than the others; `split`: by phase. `None` if no step is left.
    pub fn new(case: Case, ranks: &[StepTimes], warm_up: usize, split: bool) -> Option<Self> {
        let measured = |times: &StepTimes| -> Vec<StepTime> {
            let steps = times.steps.get(warm_up..).unwrap_or_default();
            let full = steps.iter().map(|step| step.micro_batches).max();
            steps.iter().filter(|step| Some(step.micro_batches) == full).cloned().collect()
        };
        let first = measured(ranks.first()?);
        let mut seconds: Vec<f64> = first.iter().map(StepTime::total).collect();
        seconds.sort_by(f64::total_cmp);
        if seconds.is_empty() {
            return None;
        }
        let rate = |part: f64| case.global_batch as f64 / nearest_rank(&seconds, part);
        let total: f64 = seconds.iter().sum();
        let share = |phase: fn(&StepTime) -> f64| first.iter().map(phase).sum::<f64>() / total;
        let faults = |times: &StepTimes| -> Option<f64> {
            let steps = measured(times);
            let sum: Option<u64> = steps.iter().map(|s| s.page_faults).sum();
            sum.map(|sum| sum as f64 / steps.len() as f64)
        };
        Some(Self {
            case,
            steps: first.len(),
            samples_per_s: rate(0.5),
            p10_samples_per_s: rate(0.9),
            p90_samples_per_s: rate(0.1),
            step_ms: nearest_rank(&seconds, 0.5) * 1e3,
            phases: split.then(|| Phases {
                data: share(|s| s.data),
                forward: share(|s| s.forward),
                backward: share(|s| s.backward),
                sync: share(|s| s.sync),
                update: share(|s| s.update),
            }),
            page_faults: ranks.iter().filter_map(faults).max_by(f64::total_cmp),
            peak_memory_mib: (ranks.iter().filter_map(|r| r.peak_memory).max())
                .map(|bytes| bytes as f64 / f64::from(1 << 20)),
        })
    }

    /// Its line of the table.
    pub fn line(&self) -> String {
        let Case { world, threads, global_batch } = self.case;
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let phases = self.phases.map(|p| [p.data, p.forward, p.backward, p.sync, p.update].map(percent));
        let phases = phases.unwrap_or_else(|| std::array::from_fn(|_| "-".to_owned()));
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let rate = |samples: f64| format!("{samples:.*}", if samples < 100.0 { 1 } else { 0 });
        let spread = format!("{} to {}", rate(self.p10_samples_per_s), rate(self.p90_samples_per_s));
        let [data, forward, backward, sync, update] = phases;
        columns([
            &world.to_string(),
            &threads.to_string(),
            &global_batch.to_string(),
            &rate(self.samples_per_s),
            &spread,
            &format!("{:.2}", self.step_ms),
            &data,
            &forward,
            &backward,
            &sync,
            &update,
            &or_dash(self.page_faults.map(|faults| format!("{faults:.1}"))),
            &or_dash(self.peak_memory_mib.map(|mib| format!("{mib:.0}"))),
        ])
    }
}

/// The lines above the rows.
pub fn header(spec: &str, device: &str, machine: &Machine, steps: usize, warm_up: usize) -> String {
    let titles = columns([
        "world",
        "threads",
        "batch",
        "samples/s",
        "p10 to p90",
        "step ms",
        "data",
        "forward",
        "backward",
        "sync",
        "update",
        "faults",
        "MiB",
    ]);
    format!(
        "# ddp-run {} · training steps of {spec} on {device} · {}\n# {}\n\
         # a row: {steps} steps after {warm_up} to warm up, at the median; batch over all processes, threads of each\n\
         # shares of a step on rank 0: sync is communication that does not overlap; faults: page faults per step; MiB: peak memory of a process\n\
         \n{titles}",
        machine.ddp_run,
        machine.started,
        machine.facts()
    )
}

fn columns(cells: [&str; 13]) -> String {
    const WIDTHS: [usize; 13] = [5, 7, 5, 9, 18, 9, 7, 7, 8, 7, 7, 7, 6];
    let cells = cells.iter().zip(WIDTHS).map(|(cell, width)| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step with half of the micro-batches.
    const SHORT: f64 = 0.001;

    fn times(steps: &[f64], faults: u64, peak: u64) -> StepTimes {
        let step = |&total: &f64| StepTime {
            data: 0.1 * total,
            forward: 0.25 * total,
            backward: 0.4 * total,
            sync: 0.05 * total,
            update: 0.2 * total,
            micro_batches: if total == SHORT { 1 } else { 2 },
            page_faults: Some(faults),
        };
        StepTimes { world: 2, steps: steps.iter().map(step).collect(), peak_memory: Some(peak << 20) }
    }

    #[test]
    fn a_row_has_the_median_the_spread_and_the_shares_of_the_measured_steps() {
        let case = Case { world: 2, threads: 1, global_batch: 128 };
        let steps = [9.0, 0.02, 0.01, 0.04, SHORT, 0.02, 0.05];
        let ranks = [times(&steps, 3, 100), times(&steps, 5, 90)];
        let row = Row::new(case, &ranks, 1, true).unwrap();
        assert_eq!((row.steps, row.samples_per_s, row.step_ms), (5, 6400.0, 20.0));
        assert_eq!((row.p10_samples_per_s.round(), row.p90_samples_per_s), (2560.0, 12800.0));
        assert_eq!((row.page_faults, row.peak_memory_mib), (Some(5.0), Some(100.0)));
        let titles = header("a.toml", "cpu", &Machine::here(), 5, 1);
        let table = format!("{}\n{}", titles.lines().last().unwrap(), row.line());
        assert_eq!(
            table,
            "world  threads  batch  samples/s          p10 to p90    step ms     data  forward  backward     sync   update   faults     MiB\n    \
             2        1    128       6400       2560 to 12800      20.00   10.0 %   25.0 %    40.0 %    5.0 %   20.0 %      5.0     100"
        );
    }

    #[test]
    fn what_is_not_measured_is_a_dash() {
        let case = Case { world: 1, threads: 4, global_batch: 8 };
        let mut rank = times(&[1.0, 2.0], 0, 1);
        rank.peak_memory = None;
        rank.steps.iter_mut().for_each(|step| step.page_faults = None);
        assert_eq!(Row::new(case, &[rank.clone()], 2, true), None);
        let row = Row::new(case, &[rank], 1, false).unwrap();
        assert_eq!((row.phases, row.page_faults, row.peak_memory_mib), (None, None, None));
        assert_eq!(row.line().matches(" -").count(), 7);
    }
}
