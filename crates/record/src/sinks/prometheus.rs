//! `prometheus`: the run's state as a file in Prometheus' text format, for node_exporter's textfile collector.

use super::{FOLDER, ObserverConfig, metrics, number};
use crate::{EventObserver, ObservedRun};
use base::error::{Error, IoContext, Result};
use base::files::{AtomicFile, folder, is_own, remove_begun};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use smart_default::SmartDefault;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Least time between two writes.
const EVERY: Duration = Duration::from_secs(1);

/// Keeps a file with the state of the run in Prometheus' text format, for the textfile collector of `node_exporter`. It is
/// replaced as a whole, at most once a second and at the end. All names begin with `ddp_run_`, and `run` is the name of the run.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct Prometheus {
    /// The file; a relative path is in the run's folder. The collector reads files whose names end in `.prom`, and each run
    /// needs a separate file.
    #[default(Path::new(FOLDER).join("ddp_run.prom"))]
    #[schemars(extend("format" = "path"))]
    path: PathBuf,
}

impl ObserverConfig for Prometheus {
    type Observer = TextFile;

    fn observer(&self) -> TextFile {
        TextFile { path: self.path.clone(), state: Gauges::default(), unwritten: false, written: None }
    }
}

pub struct TextFile {
    path: PathBuf,
    state: Gauges,
    unwritten: bool,
    written: Option<Instant>,
}

impl EventObserver for TextFile {
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        let of_run = self.path.is_relative();
        self.path = run.path(&self.path);
        if of_run {
            let folder = folder(&self.path);
            fs::create_dir_all(folder).doing("create", folder)?;
        }
        let name = self.path.file_name().unwrap_or_default();
        remove_begun(folder(&self.path), |begun| begun == name);
        self.state = Gauges::new(run);
        self.write()
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        self.unwritten = true;
        self.state.add(event);
        if self.written.is_some_and(|written| written.elapsed() < EVERY) {
            return Ok(());
        }
        self.write()
    }

    fn idle(&mut self) -> Result<()> {
        if self.unwritten { self.write() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<()> {
        self.state.up = false;
        self.write()
    }
}

impl TextFile {
    fn write(&mut self) -> Result<()> {
        if self.written.is_none() && !is_own(&self.path, &["ddp_run_"])? {
            let why = format!("{} is of another program: it has no `ddp_run_…`", self.path.display());
            return Err(Error::data(why));
        }
        (self.unwritten, self.written) = (false, Some(Instant::now()));
        // Readers see one file or the other. What a power failure leaves of it is replaced by the next start.
        let written = AtomicFile::new(&self.path).and_then(|mut draft| {
            draft.write_all(self.state.text().as_bytes())?;
            draft.put()
        });
        written.doing("write", &self.path)
    }
}

/// The latest values.
#[derive(Debug, Default)]
struct Gauges {
    run: String,
    world: Option<f64>,
    commit: String,
    up: bool,
    step: u64,
    epoch: u64,
    restarts: u64,
    /// The loss of the last step.
    training_loss: Option<f64>,
    lr: Option<f64>,
    samples_per_s: Option<f64>,
    tokens_per_s: Option<f64>,
    mfu: Option<f64>,
    grad_norm: Option<f64>,
    data_wait: Option<f64>,
    /// The metrics of the last epoch: split, name and value.
    metrics: Vec<(&'static str, String, f64)>,
    /// Step and time of the last checkpoint.
    checkpoint: Option<[f64; 2]>,
    /// Time of the last event.
    time: Option<f64>,
    exit_code: Option<f64>,
}

impl Gauges {
    fn new(run: &ObservedRun) -> Self {
        Self {
            run: run.name.clone(),
            world: run.run["world"].as_f64(),
            commit: run.run["git"]["commit"].as_str().unwrap_or_default().to_owned(),
            up: true,
            step: run.step,
            epoch: run.epochs,
            restarts: run.restarts,
            ..Self::default()
        }
    }

    fn add(&mut self, event: &Value) {
        let integer = |key: &str| event[key].as_u64().unwrap_or(0);
        self.time = number(event, "time").or(self.time);
        match event["event"].as_str() {
            Some("step") => {
                (self.step, self.epoch) = (integer("step"), integer("epoch"));
                self.training_loss = number(event, "loss");
                self.lr = number(event, "lr");
                self.samples_per_s = number(event, "samples_per_s");
                self.tokens_per_s = number(event, "tokens_per_s");
                self.mfu = number(event, "mfu");
                self.grad_norm = number(event, "grad_norm");
                self.data_wait = number(event, "data_wait");
            }
            Some("epoch") => {
                (self.step, self.epoch) = (integer("step"), integer("epoch") + 1);
                for split in ["train", "val"] {
                    let new: Vec<_> = metrics(event, split).collect();
                    // An epoch without an evaluation keeps the values of the last one.
                    if !new.is_empty() {
                        self.metrics.retain(|(of, ..)| *of != split);
                        self.metrics.extend(new.into_iter().map(|(name, x)| (split, name.to_owned(), x)));
                    }
                }
            }
            Some("checkpoint") => {
                self.checkpoint = number(event, "step").zip(number(event, "time")).map(<[f64; 2]>::from);
            }
            Some("restart") => self.restarts += 1,
            Some("end") => {
                self.exit_code = number(event, "exit_code");
                self.up = false;
                // `max_steps` may have cut the last one short.
                self.epoch = integer("epoch");
            }
            _ => {}
        }
    }

    fn text(&self) -> String {
        let mut page = Page { text: String::new(), run: &self.run };
        let version = env!("CARGO_PKG_VERSION");
        page.family("info", "gauge", "What runs; always 1.");
        page.sample("info", &[("version", version), ("commit", &self.commit)], 1.0);
        page.one(
            "up",
            "gauge",
            "1 while the run trains, 0 after its end.",
            Some(f64::from(u8::from(self.up))),
        );
        page.one("world_size", "gauge", "Processes.", self.world);
        page.one("step_total", "counter", "Completed optimizer steps.", Some(self.step as f64));
        page.one("epoch", "gauge", "Completed epochs.", Some(self.epoch as f64));
        page.one("restarts_total", "counter", "Restarts of the workers.", Some(self.restarts as f64));
        let losses = self.metrics.iter().filter(|(split, name, _)| name == "loss" && *split != "train");
        let losses: Vec<(&str, f64)> = self
            .training_loss
            .map(|loss| ("train", loss))
            .into_iter()
            .chain(losses.map(|(split, _, x)| (*split, *x)))
            .collect();
        if !losses.is_empty() {
            page.family("loss", "gauge", "Loss: of the last steps (train), of the last evaluation (val).");
            losses.iter().for_each(|(split, loss)| page.sample("loss", &[("split", split)], *loss));
        }
        if !self.metrics.is_empty() {
            page.family("metric", "gauge", "Metrics of the last epoch that has them.");
            for (split, name, x) in &self.metrics {
                page.sample("metric", &[("split", split), ("name", name)], *x);
            }
        }
        page.one("learning_rate", "gauge", "Learning rate of the last step.", self.lr);
        page.one("samples_per_second", "gauge", "Training samples per second.", self.samples_per_s);
        page.one("tokens_per_second", "gauge", "Training tokens per second.", self.tokens_per_s);
        page.one("mfu_ratio", "gauge", "Model FLOPs as a part of what the devices can do.", self.mfu);
        page.one("gradient_norm", "gauge", "Norm of the gradients before clipping.", self.grad_norm);
        page.one("data_wait_ratio", "gauge", "Part of the time that steps waited for data.", self.data_wait);
        let [step, time] = self.checkpoint.map_or([None; 2], |both| both.map(Some));
        page.one("checkpoint_step", "gauge", "Step of the last checkpoint.", step);
        page.one("checkpoint_timestamp_seconds", "gauge", "Time of the last checkpoint.", time);
        page.one("last_event_timestamp_seconds", "gauge", "Time of the last event.", self.time);
        page.one("exit_code", "gauge", "Exit code, after the end.", self.exit_code);
        page.text
    }
}

/// The text format, version 0.0.4.
struct Page<'a> {
    text: String,
    run: &'a str,
}

impl Page<'_> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP ddp_run_{name} {help}\n# TYPE ddp_run_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.text, "ddp_run_{name}{{run=\"{}\"", escaped(self.run));
        for (label, text) in labels {
            let _ = write!(self.text, ",{label}=\"{}\"", escaped(text));
        }
        let _ = writeln!(self.text, "}} {}", shown(value));
    }

    /// A family with one sample, if there is a value.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: Option<f64>) {
        if let Some(value) = value {
            self.family(name, kind, help);
            self.sample(name, &[], value);
        }
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn shown(value: f64) -> String {
    match value {
        x if x == f64::INFINITY => "+Inf".to_owned(),
        x if x == f64::NEG_INFINITY => "-Inf".to_owned(),
        x => x.to_string(),
    }
}

#[cfg(test)]
#[path = "prometheus_tests.rs"]
mod tests;
