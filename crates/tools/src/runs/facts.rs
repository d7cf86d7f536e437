//! Single values about a run: for filters, for sorting and as JSON.

use super::folder::{RunFolder, RunStatus, plain};
use checkpoint::format::step_dir_name;
use record::{EpochEvent, Metrics, Provenance};
use serde_json::{Map, Value as Json, json};

/// Facts in addition to the keys of the spec and the metrics (`val.loss`).
pub const FACTS: [&str; 19] = [
    "name",
    "folder",
    "state",
    "started",
    "epoch",
    "step",
    "best",
    "seconds",
    "samples_per_s",
    "restarts",
    "world",
    "backend",
    "device",
    "launcher",
    "host",
    "commit",
    "hash",
    "checkpoints",
    "bytes",
];

/// A value to compare.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    Number(f64),
    Text(String),
}

impl Fact {
    fn new(text: String) -> Self {
        text.parse().map_or(Self::Text(text), Self::Number)
    }

    pub fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl RunFolder {
    /// One of [`FACTS`], the last value of a metric, or a key of the spec, in this order. `None` also for NaN.
    pub fn fact(&self, key: &str) -> Option<Fact> {
        let (course, latest) = (&self.course, self.latest());
        let text = |of: &dyn Fn(&Provenance) -> String| latest.map(|start| Fact::Text(of(start)));
        let number = |of: f64| Some(Fact::Number(of)).filter(|_| !of.is_nan());
        match key {
            "name" => Some(Fact::Text(self.name.clone())),
            "folder" => Some(Fact::Text(self.folder.display().to_string())),
            "state" => Some(Fact::Text(self.state.word().to_owned())),
            "started" => Some(Fact::Text(self.started.clone())),
            "epoch" => number(course.epochs as f64),
            "step" => number(course.step as f64),
            "best" => number(course.best.as_ref()?.value),
            "seconds" => number(course.seconds()?),
            "samples_per_s" => number(course.samples_per_s()?),
            "restarts" => number(course.restart_count() as f64),
            "world" => number(latest?.world as f64),
            "backend" => text(&|start| start.backend.clone()),
            "device" => text(&|start| devices(start)),
            "launcher" => text(&|start| start.launcher.clone()),
            "host" => text(&|start| start.host.name.clone()),
            "commit" => Some(Fact::Text(latest?.git.as_ref()?.commit.clone())),
            "hash" => text(&|start| start.spec_hash.clone()),
            "checkpoints" => number(self.checkpoints.len() as f64),
            "bytes" => number(self.bytes as f64),
            _ => match course.last(key) {
                Some(value) => number(value),
                None => self.of_spec(key).map(Fact::new),
            },
        }
    }

    /// All keys that [`RunFolder::fact`] knows here.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let metrics = self.course.measured.iter().map(|(name, _)| name.as_str());
        let spec = self.spec.iter().flat_map(|spec| spec.keys()).map(String::as_str);
        FACTS.into_iter().chain(metrics).chain(spec)
    }

    /// The best epoch's checkpoint, if it is there.
    pub fn best_checkpoint(&self) -> Option<String> {
        let step = self.course.best.as_ref()?.epoch.step;
        self.checkpoints.iter().any(|entry| entry.step == step).then(|| step_dir_name(step))
    }

    /// An entry of lists, with the names of [`FACTS`]; unknown values are `null`.
    pub fn json(&self) -> Json {
        let (course, latest) = (&self.course, self.latest());
        let (code, reason) = match &self.state {
            RunStatus::Failed { code, reason } => (*code, Some(reason)),
            _ => (course.end.as_ref().map(|end| end.exit_code), None),
        };
        let first = self.starts.as_ref().and_then(|file| file.earlier.first()).or(latest);
        let mut all = json!({
            "name": self.name,
            "folder": self.folder.display().to_string(),
            "archived": self.archived,
            "state": self.state.word(),
            "exit_code": code,
            "reason": reason,
            "problems": self.problems,
            "started": self.started,
            "first_started": first.map(|start| &start.started),
            "starts": self.starts.as_ref().map(|file| file.earlier.len() + 1),
            "epoch": course.epochs,
            "epochs": self.of_spec("epochs").and_then(|epochs| epochs.parse::<u64>().ok()),
            "step": course.step,
            "seconds": course.seconds(),
            "samples_per_s": course.samples_per_s(),
            "restarts": course.restart_count(),
            "metrics": metrics(&course.measured),
            "last": course.last_epoch.as_ref().map(epoch),
        });
        let best = course.best.as_ref().zip(self.by.as_ref()).map(|(best, by)| {
            json!({ "metric": by.metric, "value": best.value, "epoch": best.epoch.epoch, "step": best.epoch.step,
                "checkpoint": self.best_checkpoint() })
        });
        let git = latest.and_then(|start| start.git.as_ref());
        let rest = json!({
            "best": best,
            "world": latest.map(|start| start.world),
            "backend": latest.map(|start| &start.backend),
            "devices": latest.map(|start| &start.devices),
            "launcher": latest.map(|start| &start.launcher),
            "host": latest.map(|start| &start.host.name),
            "commit": git.map(|git| &git.commit),
            "dirty": git.and_then(|git| git.dirty),
            "hash": latest.map(|start| &start.spec_hash),
            "checkpoints": self.checkpoints.iter().map(|entry| step_dir_name(entry.step)).collect::<Vec<_>>(),
            "bytes": self.bytes,
            "spec": self.spec.as_ref().map(|spec| {
                spec.iter().map(|(key, value)| (key.clone(), toml_as_json(value))).collect::<Map<_, _>>()
            }),
        });
        if let (Json::Object(all), Json::Object(rest)) = (&mut all, rest) {
            all.extend(rest);
        }
        all
    }
}

/// `cpu`, or `cuda:0, cuda:1`.
pub(super) fn devices(start: &Provenance) -> String {
    let mut all = start.devices.clone();
    all.dedup();
    all.join(", ")
}

fn metrics(measured: &[(String, f64)]) -> Json {
    measured.iter().map(|(name, value)| (name.clone(), json!(value))).collect::<Map<_, _>>().into()
}

fn epoch(event: &EpochEvent) -> Json {
    let of = |metrics: &Metrics| -> Map<String, Json> {
        metrics.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect()
    };
    json!({ "epoch": event.epoch, "step": event.step, "train": of(&event.train), "val": event.val.as_ref().map(of) })
}

/// A value of a spec, which is one of TOML on a line.
pub(super) fn toml_as_json(value: &str) -> Json {
    let read = format!("x = {value}").parse::<toml::Table>().ok().and_then(|mut table| table.remove("x"));
    read.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_else(|| plain(value).into())
}
