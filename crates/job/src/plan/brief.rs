//! The plan in a few lines, as a run shows it before its first step.

use super::print::global_batch;
use super::units::{show_bytes, show_count};
use super::{Plan, one_line};
use base::display::{count, cut, plural, wrapped};
use checkpoint::Every;
use data::DataFacts;
use spec::Origin;
use std::path::Path;
use train::models::TensorFacts;
use train::training::Position;

/// Largest number of lines for the values that were set; `ddp-run plan` prints all.
const SET_LINES: usize = 6;
/// Characters of a value.
const LONGEST_VALUE: usize = 60;

/// What the lines before these show.
const SHOWN: [&str; 12] = [
    "name",
    "epochs",
    "batch_size",
    "save_every",
    "backend",
    "device",
    "model.name",
    "dataset.name",
    "optimizer.name",
    "optimizer.lr",
    "checkpoint.best",
    "launch.nproc_per_node",
];

/// What a rank knows once the data is read and all ranks are connected.
pub struct Running<'a> {
    /// What is known of the opened data set.
    pub facts: &'a DataFacts,
    /// Tensors of the model's state, in registration order.
    pub tensors: &'a [TensorFacts],
    /// Where the run begins, or continues.
    pub position: &'a Position,
    /// Device of this rank, as in `cuda:0`.
    pub device: String,
    /// Engine of the process group: `gloo`, `nccl`, `mpi` or `solo`.
    pub backend: &'a str,
    /// Number of compute threads of this rank.
    pub threads: usize,
    /// Folder of the run.
    pub out_dir: &'a Path,
    /// [`Plan::set_values`] of the spec as typed.
    pub set: &'a [String],
}

impl Plan {
    /// The values that the spec or the command line sets, as `key = value`, without those that every brief shows.
    pub fn set_values(&self) -> Vec<String> {
        // `[sweep]` is of no run.
        let shown = |key: &str| {
            SHOWN.contains(&key)
                || key.starts_with("scheduler") && key.ends_with("name")
                || key.starts_with("sweep.")
        };
        let set = self.values.iter().filter(|value| value.origin != Origin::Default && !shown(&value.key));
        set.map(|value| format!("{} = {}", value.key, cut(&one_line(&value.value), LONGEST_VALUE))).collect()
    }

    /// The plan in at most 15 lines.
    pub fn brief(&self, run: &Running<'_>) -> String {
        let plan = self.running(run);
        let mut rows = vec![
            ("model", plan.model_line()),
            ("data", plan.data_line()),
            ("processes", plan.processes_line(run)),
            ("steps", plan.steps_line(run.position)),
            ("training", plan.training_line()),
        ];
        rows.extend(plan.traffic().map(|traffic| ("all-reduce", traffic)));
        rows.push(("checkpoints", plan.checkpoints_line(run)));
        if !run.set.is_empty() {
            let (last, others) = run.set.split_last().unwrap_or((&plan.name, &[]));
            let items: Vec<String> =
                others.iter().map(|item| format!("{item},")).chain([last.clone()]).collect();
            rows.push(("set", limited(&wrapped(items.iter().map(String::as_str), INDENT))));
        }
        let row = |(name, text): (&str, String)| format!("  {name:11}  {text}\n");
        format!("{}\n{}", self.name, rows.into_iter().map(row).collect::<String>())
    }

    /// With what only the data and the checkpoint show.
    fn running(&self, run: &Running<'_>) -> Plan {
        self.with_data(run.facts.clone(), run.tensors, &run.position.batching)
    }

    fn model_line(&self) -> String {
        let name = &self.model.name;
        let Some(sizes) = &self.sizes else { return name.clone() };
        let all = format!("{name}, {} parameters", show_count(sizes.parameters));
        let frozen = sizes.parameters - sizes.trainable;
        let frozen =
            if frozen > 0 { format!(", {} of them frozen", show_count(frozen)) } else { String::new() };
        format!("{all} ({}){frozen}", show_bytes(sizes.model_bytes))
    }

    fn data_line(&self) -> String {
        let facts = &self.dataset.facts;
        let counts = [("training", facts.train), ("validation", facts.val)];
        let counts =
            counts.into_iter().filter_map(|(part, n)| Some(format!("{} {part}", show_count(n? as u64))));
        let counts = counts.collect::<Vec<_>>().join(" and ");
        let target = super::print::field(facts.target.as_ref());
        let input = super::print::field(facts.input.as_ref());
        format!("{}: {counts} samples; input {input}, target {target}", self.dataset.name)
    }

    fn processes_line(&self, run: &Running<'_>) -> String {
        let (world, threads) = (&self.world, run.threads);
        // An elastic run does not know its nodes.
        let known = world.nnodes > 1 && !self.nodes.nnodes.is_elastic();
        let nodes = if known { format!(" on {} nodes", world.nnodes) } else { String::new() };
        // Each rank has its own.
        let own = world.world_size > 1 && self.device.index().is_none();
        let device = if own { run.device.split(':').next().unwrap_or_default() } else { &run.device };
        let each = count(threads, "thread");
        let by = if world.world_size > 1 { format!(" by {}", run.backend) } else { String::new() };
        format!("{}{nodes}{by}, {} with {each} each", show_count(world.world_size as u64), device)
    }

    fn steps_line(&self, position: &Position) -> String {
        let batch = &self.batch;
        let of = |n: Option<usize>| n.map_or_else(String::new, |n| show_count(n as u64));
        let samples = self.dataset.facts.train.unwrap_or(0);
        let (max_steps, drop_last) = (self.train.max_steps, self.loader.drop_last);
        let all_epochs = self.epochs.unwrap_or_else(|| position.epochs_of(max_steps, samples, drop_last));
        let left = position.steps_left(all_epochs, samples, drop_last);
        let all = position.step.saturating_add(left).min(max_steps.unwrap_or(u64::MAX));
        let done = match position.step {
            0 => String::new(),
            done => format!(", {} of them done", show_count(done)),
        };
        let epochs = plural(all_epochs as usize, "epoch");
        // Epochs before a change of the batch had another number of steps.
        let each = match position.batching == position.first {
            true => format!(" of {}", of(batch.steps_per_epoch)),
            false => String::new(),
        };
        let mut line = format!(
            "{} in {} {epochs}{each}{done}; {} samples a step",
            show_count(all),
            show_count(all_epochs),
            global_batch(&position.batching)
        );
        for (what, n) in [("repeated", batch.padded), ("left out", batch.dropped)] {
            if let Some(n) = n.filter(|n| *n > 0) {
                line += &format!("; {} {what} per epoch", show_count(n as u64));
            }
        }
        line
    }

    fn training_line(&self) -> String {
        let schedules = self.values.iter().filter(|value| {
            value.key == "scheduler.name"
                || value.key.starts_with("scheduler.") && value.key.ends_with(".name")
        });
        let names: Vec<&str> = schedules.filter_map(|value| value.value.as_str()).collect();
        let schedule = if names.is_empty() { "constant".to_owned() } else { names.join(", then ") };
        let lr = one_line(&toml::Value::Float(self.optimizer.lr));
        let precision = match self.precision {
            ddp::device::Precision::F32 => String::new(),
            other => format!(", {other}"),
        };
        format!("{} by {}, lr {lr} ({schedule}){precision}", self.task, self.optimizer.name)
    }

    fn checkpoints_line(&self, run: &Running<'_>) -> String {
        if self.save_every == Every::Never {
            return format!("never; the run's folder is {}", run.out_dir.display());
        }
        let size = self
            .sizes
            .as_ref()
            .map_or_else(String::new, |s| format!(" ({} each)", show_bytes(s.checkpoint_bytes)));
        let best = match self.checkpoint.keep_best {
            Some(0) | None => String::new(),
            _ => format!("; the best by {}", self.checkpoint.best),
        };
        format!("{}{size}, in {}{best}", self.save_every, run.out_dir.display())
    }
}

/// Where a row's text begins.
const INDENT: usize = 15;

/// The first lines of a text.
fn limited(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.get(..SET_LINES) {
        Some(first) if lines.len() > SET_LINES => {
            format!("{} … (`ddp-run plan` shows all)", first.join("\n"))
        }
        _ => text.to_owned(),
    }
}
