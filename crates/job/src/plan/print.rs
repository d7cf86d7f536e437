//! Shows a plan: as text for users, and as JSON for programs.

use super::Plan;
use super::units::{show_bytes, show_count};
use base::display::{self, count, cut};
use data::{FieldFacts, FieldKind};
use ddp::device::DeviceSpec;
use launch::Nproc;
use serde_json::json;
use std::fmt::Write;
use train::training::Batching;

impl Plan {
    /// All values with their origins, table by table, followed by derived values.
    pub fn text(&self) -> String {
        let mut out = self.values_text();
        for (title, rows) in self.facts() {
            let _ = writeln!(out, "\n{title}");
            let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            for (name, value) in rows {
                let _ = writeln!(out, "  {name:width$}  {value}");
            }
        }
        out
    }

    /// What the opened data tells, as comments behind [`Plan::to_toml`].
    pub fn toml_comments(&self) -> String {
        let mut out = String::from("\n# Known from the data:\n");
        for (name, value) in self.facts().into_iter().flat_map(|(_, rows)| rows) {
            let _ = writeln!(out, "#   {name}: {}", display::piece(&value));
        }
        out
    }

    fn values_text(&self) -> String {
        let mut tables: Vec<(&str, Vec<[String; 3]>)> = Vec::new();
        for resolved in &self.values {
            let (table, key) = resolved.key.rsplit_once('.').unwrap_or(("", &resolved.key));
            let row = [key.to_owned(), one_line(&resolved.value), resolved.origin.to_string()];
            match tables.iter_mut().find(|(name, _)| *name == table) {
                Some((_, rows)) => rows.push(row),
                None => tables.push((table, vec![row])),
            }
        }
        // A single long value (a list of columns) must not push the origins of all others off the screen.
        let width = |i: usize, most: usize| {
            let lengths = tables.iter().flat_map(|(_, rows)| rows.iter().map(move |r| r[i].chars().count()));
            lengths.filter(|l| *l <= most).max().unwrap_or(0)
        };
        let (keys, values) = (width(0, 40), width(1, 40));
        let mut out = String::new();
        for (table, rows) in &tables {
            if !table.is_empty() {
                let _ = writeln!(out, "\n[{table}]");
            }
            for [key, value, origin] in rows {
                let _ = writeln!(out, "  {key:keys$}  {value:values$}  {origin}");
            }
        }
        out
    }

    /// The derived values, as groups of (name, value).
    fn facts(&self) -> Vec<(&'static str, Vec<(&'static str, String)>)> {
        let mut groups = vec![("Work", self.work()), ("Data", self.data())];
        groups.push(("Model", self.model_facts()));
        groups.push(("Identity", vec![("hash", self.hash.clone())]));
        groups.extend(Some(self.warnings()).filter(|all| !all.is_empty()).map(|all| ("Warnings", all)));
        groups
    }

    fn work(&self) -> Vec<(&'static str, String)> {
        let world = &self.world;
        let processes = match world.nnodes {
            1 => show_count(world.world_size as u64),
            n => format!("{} ({n} nodes x {})", show_count(world.world_size as u64), world.nproc_per_node),
        };
        let by_devices = matches!(self.launch.nproc_per_node, Nproc::Devices | Nproc::Gpu);
        let any = matches!(self.device, DeviceSpec::Cuda(None) | DeviceSpec::Wgpu(None));
        let processes = match by_devices && any && world.world_size == 1 {
            true => "1, for the devices of this machine; `--world N` plans for N".to_owned(),
            false => processes,
        };
        let batch = &self.batch;
        let count = |n: Option<usize>| n.map_or_else(unknown, |n| show_count(n as u64));
        let mut rows = vec![
            ("processes", processes),
            ("global batch", global_batch(&self.batching(world.world_size))),
            ("samples per rank", count(batch.samples_per_rank)),
            ("steps per epoch", count(batch.steps_per_epoch)),
            ("steps in all", self.total_steps().map_or_else(unknown, show_count)),
            ("samples in all", self.total_samples().map_or_else(unknown, show_count)),
        ];
        if self.epochs.is_none() {
            let epochs = self.total_epochs().map_or_else(unknown, show_count);
            rows.push(("epochs", format!("{epochs}, by `train.max_steps`")));
        }
        if let (Some(padded), Some(dropped)) = (batch.padded, batch.dropped) {
            let samples = |n: usize, what: &str| match n {
                0 => "none".to_owned(),
                1 => format!("1 sample per epoch {what}"),
                n => format!("{} samples per epoch {what}", show_count(n as u64)),
            };
            rows.push(("padding", samples(padded, "repeated")));
            rows.push(("dropped", samples(dropped, "left out")));
        }
        if let Some(samples) = batch.short_step() {
            let samples = show_count(samples as u64);
            rows.push((
                "last step",
                format!("{samples} samples per epoch; micro-batches are weighted by their samples"),
            ));
        }
        rows.push(("schedule", self.schedule_text()));
        rows.push(("loss", self.task.to_string()));
        rows.push(("checkpoints", self.save_every.to_string()));
        rows
    }

    /// `warmup for 60 steps, then cosine for 240`.
    fn schedule_text(&self) -> String {
        let part = |(name, steps): (&str, Option<u64>)| match steps {
            Some(1) => format!("{name} for 1 step"),
            Some(steps) => format!("{name} for {} steps", show_count(steps)),
            None => name.to_owned(),
        };
        let parts = self.schedule_lengths();
        let steps = parts.iter().any(|(_, steps)| steps.is_none()).then(|| format!("; steps {}", unknown()));
        let parts: Vec<String> = parts.into_iter().map(part).collect();
        parts.join(", then ") + &steps.unwrap_or_default()
    }

    fn schedule_lengths(&self) -> Vec<(&str, Option<u64>)> {
        self.schedule.lengths(self.batch.steps_per_epoch.map(|steps| steps as u64), self.total_steps())
    }

    fn data(&self) -> Vec<(&'static str, String)> {
        let count = |n: Option<usize>| n.map_or_else(unknown, |n| show_count(n as u64));
        let facts = &self.dataset.facts;
        // If the size of the training split is known, so are the others.
        let part = |n: Option<usize>| match (n, facts.train) {
            (None | Some(0), Some(_)) => "none".to_owned(),
            (n, _) => count(n),
        };
        let mut rows = vec![
            ("training", count(facts.train)),
            ("validation", part(facts.val)),
            ("test", part(facts.test)),
            ("input", field(facts.input.as_ref())),
            ("target", field(facts.target.as_ref())),
        ];
        rows.extend(self.dataset.classes.as_deref().map(|classes| ("classes", named(classes))));
        let further = facts.fields.iter().map(|(name, facts)| format!("{name}: {}", field(Some(facts))));
        let further: Vec<String> = further.collect();
        if !further.is_empty() {
            rows.push(("fields", further.join("; ")));
        }
        rows
    }

    fn model_facts(&self) -> Vec<(&'static str, String)> {
        let Some(sizes) = &self.sizes else {
            return vec![("parameters", unknown())];
        };
        let traffic = self.traffic().unwrap_or_else(|| "none with one process".to_owned());
        let elements = |n: u64| format!("{} ({})", show_count(n), show_bytes(n.saturating_mul(4)));
        let mut rows = vec![("parameters", elements(sizes.parameters))];
        if sizes.trainable < sizes.parameters {
            let frozen = show_count(sizes.parameters - sizes.trainable);
            rows.push(("trainable", format!("{}; {frozen} are frozen", elements(sizes.trainable))));
        }
        rows.extend([
            ("buffers", elements(sizes.buffers)),
            ("gradients", show_bytes(sizes.gradient_bytes)),
            ("optimizer state", show_bytes(sizes.optimizer_bytes)),
        ]);
        rows.extend(sizes.average_bytes.map(|bytes| ("weight average", show_bytes(bytes))));
        rows.extend([("all-reduce", traffic), ("checkpoint", show_bytes(sizes.checkpoint_bytes))]);
        rows.extend(self.memory_text().map(|text| ("memory", text)));
        rows
    }

    /// What a step sends; `None` with one process, or if it is unknown.
    pub(super) fn traffic(&self) -> Option<String> {
        let sizes = self.sizes.as_ref().filter(|_| self.world.world_size > 1)?;
        Some(format!(
            "{} per step from each rank, in {}{}",
            show_bytes(sizes.all_reduce_bytes_per_step),
            count(sizes.buckets, "bucket"),
            match &self.comm_hook {
                Some(hook) => format!(", before the hook `{}`", hook.name()),
                None => String::new(),
            }
        ))
    }

    /// The plan as JSON, for programs.
    pub fn json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "hash": self.hash,
            "world": self.world,
            "batch": self.batch,
            "total_steps": self.total_steps(),
            "total_epochs": self.total_epochs(),
            "total_samples": self.total_samples(),
            "data": self.dataset.facts,
            "classes": self.dataset.classes,
            "loss": self.task.json(),
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "schedule_steps": self.schedule_lengths(),
            "sizes": self.sizes,
            "memory": self.memory(),
            "warnings": self.warnings(),
            "values": self.values,
        })
    }
}

fn unknown() -> String {
    "known when the data is read (`plan --data`)".to_owned()
}

/// Most characters of the classes' names.
const NAMES: usize = 100;

/// `3: Adelie, Chinstrap, Gentoo`.
fn named(classes: &[String]) -> String {
    let mut names = String::new();
    for class in classes {
        let comma = if names.is_empty() { "" } else { ", " };
        let name = display::name(class);
        let name = cut(&name, NAMES / 2);
        if names.chars().count() + name.chars().count() > NAMES {
            names += ", …";
            break;
        }
        names = names + comma + &name;
    }
    format!("{}: {names}", show_count(classes.len() as u64))
}

/// `[1, 24, 24] numbers`, `one of 8 classes`.
pub(super) fn field(field: Option<&FieldFacts>) -> String {
    match field {
        None => unknown(),
        Some(FieldFacts { shape, kind: FieldKind::Float }) => format!("{shape:?} numbers"),
        Some(FieldFacts { shape, kind: FieldKind::Index(n) }) if shape.is_empty() => {
            format!("one of {n} classes")
        }
        Some(FieldFacts { shape, kind: FieldKind::Index(n) }) => format!("{shape:?} indices below {n}"),
    }
}

/// A value as one-line TOML, with exponents for small numbers.
pub fn one_line(value: &toml::Value) -> String {
    match value {
        toml::Value::Float(x) if *x != 0.0 && x.abs() < 1e-4 => format!("{x:e}"),
        other => other.to_string(),
    }
}

/// The tables in the order of a plan: model, data and training first, then saving, metrics and launching.
const TABLES: [&str; 17] = [
    "model",
    "dataset",
    "tokenizer",
    "transform",
    "task",
    "loss",
    "metric",
    "train",
    "optimizer",
    "scheduler",
    "ema",
    "early_stop",
    "checkpoint",
    "metrics",
    "observer",
    "launch",
    "distributed",
];

/// The place of a table in plans; `path` may be dotted, and is empty for the top level.
pub fn table_rank(path: &str) -> usize {
    match path.split('.').next() {
        None | Some("") => 0,
        Some(table) => 1 + TABLES.iter().position(|t| *t == table).unwrap_or(TABLES.len()),
    }
}

/// `64 (32 x 2 processes)`
pub(super) fn global_batch(batching: &Batching) -> String {
    let accumulate = match batching.accumulate {
        1 => String::new(),
        n => format!(" x {n} accumulated"),
    };
    format!(
        "{} ({} x {}{accumulate})",
        show_count(batching.global_batch() as u64),
        batching.batch_size,
        count(batching.world, "process"),
    )
}
