//! The parts of MLflow's REST API 2.0 that are used.

use super::MARGIN;
use super::client::Client;
use crate::ObservedRun;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// A request that failed.
#[derive(Debug)]
pub struct Failed {
    /// Begins with the address.
    pub why: String,
    /// A later request may succeed.
    pub again: bool,
    /// MLflow's `error_code`; empty if there is none.
    pub code: String,
}

pub type Answered<T> = Result<T, Failed>;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    pub name: String,
    pub value: f64,
    /// Milliseconds since 1970.
    pub time: u64,
    pub step: u64,
}

/// Names and values.
pub type Pairs = Vec<(String, String)>;

pub struct Api<'a> {
    pub client: &'a Client,
    /// The run may end while requests are made: they are not to take longer than it waits.
    pub run: &'a ObservedRun,
    /// Longest time of a request.
    pub most: Duration,
}

impl Api<'_> {
    /// How long the next request may take.
    fn limit(&self) -> Duration {
        let left = |until: Instant| until.saturating_duration_since(Instant::now()).saturating_sub(MARGIN);
        // No time at all would be no limit.
        self.run
            .waits_until()
            .map_or(self.most, |until| self.most.min(left(until)))
            .max(Duration::from_millis(1))
    }

    /// The id of the experiment of this name, which is created if there is none.
    pub fn experiment(&self, name: &str) -> Answered<String> {
        match self.experiment_named(name) {
            Err(failed) if failed.code == "RESOURCE_DOES_NOT_EXIST" => {}
            found => return found,
        }
        match self.client.post("experiments/create", &json!({ "name": name }), self.limit()) {
            Ok(made) => text(&made["experiment_id"]),
            // Another run has created it meanwhile.
            Err(failed) if failed.code == "RESOURCE_ALREADY_EXISTS" => self.experiment_named(name),
            Err(failed) => Err(failed),
        }
    }

    fn experiment_named(&self, name: &str) -> Answered<String> {
        let found = self.client.get("experiments/get-by-name", ("experiment_name", name), self.limit())?;
        text(&found["experiment"]["experiment_id"])
    }

    /// Creates a run and returns its id.
    pub fn create(&self, experiment: &str, name: &str, time: u64, tags: &Pairs) -> Answered<String> {
        let body = json!({
            "experiment_id": experiment, "run_name": name, "start_time": time, "tags": pairs(tags),
        });
        text(&self.client.post("runs/create", &body, self.limit())?["run"]["info"]["run_id"])
    }

    /// The parameters of a run; `None` if there is no such run any more.
    pub fn parameters(&self, run: &str) -> Answered<Option<Map<String, Value>>> {
        let found = match self.client.get("runs/get", ("run_id", run), self.limit()) {
            Err(failed) if failed.code == "RESOURCE_DOES_NOT_EXIST" => return Ok(None),
            found => found?,
        };
        if found["run"]["info"]["lifecycle_stage"] == "deleted" {
            return Ok(None);
        }
        let all = found["run"]["data"]["params"].as_array().into_iter().flatten();
        Ok(Some(all.filter_map(|p| Some((p["key"].as_str()?.to_owned(), p["value"].clone()))).collect()))
    }

    /// Sets the state of a run: `RUNNING`, or with the time of its end one of the others.
    pub fn update(&self, run: &str, status: &str, end: Option<u64>) -> Answered<()> {
        let mut body = json!({ "run_id": run, "status": status });
        if let Some(end) = end {
            body["end_time"] = end.into();
        }
        self.client.post("runs/update", &body, self.limit()).map(drop)
    }

    /// At most 1000 metrics, 100 parameters and 100 tags.
    pub fn log(&self, run: &str, metrics: &[Metric], params: &Pairs, tags: &Pairs) -> Answered<()> {
        let metric = |m: &Metric| {
            // As protocol buffers write it in JSON.
            let value = if m.value.is_nan() { json!("NaN") } else { json!(m.value) };
            json!({ "key": m.name, "value": value, "timestamp": m.time, "step": m.step })
        };
        let metrics: Vec<Value> = metrics.iter().map(metric).collect();
        let body = json!({
            "run_id": run, "metrics": metrics, "params": pairs(params), "tags": pairs(tags),
        });
        self.client.post("runs/log-batch", &body, self.limit()).map(drop)
    }
}

fn pairs(all: &Pairs) -> Vec<Value> {
    all.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect()
}

fn text(value: &Value) -> Answered<String> {
    let why = "the server's answer lacks an id; is it an MLflow server?".to_owned();
    value.as_str().map(str::to_owned).ok_or(Failed { why, again: false, code: String::new() })
}
