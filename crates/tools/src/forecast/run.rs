//! Steps and checkpoints that a run measured.

use super::measured::{Saves, Step, Steps, UNDIVIDED, is_usable};
use record::{Event, RankTimes, for_each_event, provenance};
use std::path::Path;

impl Steps {
    /// Reads the `times` of a run's step events, of its last number of processes and without the first event, and its
    /// checkpoints.
    ///
    /// # Errors
    /// Why the run is of no use.
    pub fn of_run(folder: &Path) -> Result<Self, String> {
        let shown = folder.display();
        let start = provenance::read(&folder.join("run.json")).map_err(|e| e.message)?.latest;
        let spec = base::files::read_text(&folder.join("job.toml"));
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
        let device = start.devices.first().map_or_else(|| "cpu".to_owned(), Clone::clone);
        let undivided = device != "cpu";
        if undivided && start.world > 1 {
            // The host waits for both together.
            return Err(format!(
                "{shown} ran on {} devices, which do not tell computation from communication",
                start.world
            ));
        }
        let mut step = Step {
            world: start.world,
            threads: integer(Some("launch"), "threads").map_or(cores.max(1), |n| n as usize),
            samples: samples as f64,
            data: mean(&|t| t.data.iter().sum()),
            forward: mean(&|t| t.forward.iter().sum()),
            backward: mean(&|t| t.backward.iter().sum()),
            update: mean(&|t| t.optimizer.iter().sum()),
            // Events have sums of several steps.
            spread: None,
        };
        if undivided {
            let all = step.compute() + mean(&|t| t.comm.iter().sum());
            (step.data, step.update) = (0.0, 0.0);
            (step.forward, step.backward) = (all * UNDIVIDED.forward, all * UNDIVIDED.backward);
        }
        if !is_usable(&step) {
            return Err(format!("the steps of {shown} took no time"));
        }
        let saves = sums.saves();
        let source = format!("the run {}", start.name);
        let cores = Some(start.host.cores);
        Ok(Self { rows: vec![step], undivided, device, saves, of_run: true, source, warnings: vec![], cores })
    }
}

impl Saves {
    /// Reads the checkpoint events of a run.
    ///
    /// # Errors
    /// Why the run is of no use.
    pub fn of_run(folder: &Path) -> Result<Self, String> {
        let mut sums = Sums::default();
        for_each_event(&folder.join("metrics.jsonl"), |event| {
            if let Event::Checkpoint(save) = event {
                sums.add(save.bytes as f64, save.seconds, save.held_up_s);
            }
        })
        .map_err(|e| e.message)?;
        sums.saves().ok_or_else(|| format!("{} has no checkpoint in its metrics.jsonl", folder.display()))
    }
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
