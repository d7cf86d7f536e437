//! `mlflow`: the run as a run of an MLflow tracking server.

mod api;
#[cfg(feature = "mlflow")]
mod client;
#[cfg(not(feature = "mlflow"))]
#[path = "no_client.rs"]
mod client;
mod facts;
#[cfg(all(test, feature = "mlflow"))]
mod tests;

use super::{FOLDER, ObserverConfig};
use crate::{EventObserver, ObservedRun, RunEnd};
use api::{Answered, Api, Failed, Metric, Pairs};
use base::error::{Error, Result};
use base::files;
use client::Client;
use facts::{Env, Server};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// MLflow's limits for one request.
const METRICS: usize = 1000;
const PARAMS: usize = 100;
/// Values that wait for a server; of more, the oldest are lost.
const WAITING: usize = 100_000;
/// The process exits this long after the last request at the latest.
const MARGIN: Duration = Duration::from_secs(1);

/// Why a build without a client can't have this sink.
const NO_CLIENT: &str = "this build has no HTTP client (cargo feature `mlflow`)";

/// Logs the run to an MLflow tracking server: the values of the spec as parameters, `step/…`, `train/…` and `val/…` as metrics, commit,
/// host and others as tags. A resumed run continues its run there. Credentials are read from MLFLOW_TRACKING_TOKEN, or from
/// MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct MlFlow {
    /// Address of the server, such as `http://localhost:5000`. Default: MLFLOW_TRACKING_URI.
    uri: Option<String>,
    /// The experiment, which is created if there is none. Default: MLFLOW_EXPERIMENT_NAME, else the run's name.
    experiment: Option<String>,
}

impl ObserverConfig for MlFlow {
    type Observer = Tracking;

    fn problem(&self) -> Option<(&'static str, String)> {
        if cfg!(not(feature = "mlflow")) {
            return Some(("name", NO_CLIENT.to_owned()));
        }
        facts::wrong_uri(self.uri.as_deref()?).map(|why| ("uri", why.to_owned()))
    }

    fn observer(&self) -> Tracking {
        Tracking::new(self.clone(), |name| std::env::var(name).ok(), Pace::default())
    }
}

/// Times between requests.
#[derive(Clone, Copy)]
struct Pace {
    /// Limit of a request.
    request: Duration,
    /// Least time between two batches.
    every: Duration,
    /// Time after the first failure; it doubles up to `most`.
    pause: Duration,
    most: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { request: seconds(5), every: seconds(1), pause: seconds(1), most: seconds(60) }
    }
}

/// `metrics/mlflow.json`: where a run is logged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LoggedRun {
    uri: String,
    experiment: String,
    run_id: String,
}

pub struct Tracking {
    config: MlFlow,
    env: Env,
    pace: Pace,
    run: ObservedRun,
    /// `None` if there is none, or it has refused the run.
    server: Option<(Server, Client)>,
    run_id: Option<String>,
    /// What has not been sent yet.
    params: Pairs,
    tags: Pairs,
    metrics: VecDeque<Metric>,
    /// Metrics that are lost.
    lost: usize,
    /// Parameters and tags that are lost.
    lost_pairs: usize,
    /// Why something was given up, if no warning has reported it.
    given_up: Option<String>,
    not_before: Instant,
    pause: Duration,
    /// There was a warning.
    warned: bool,
    status: &'static str,
}

impl EventObserver for Tracking {
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        self.run = run.clone();
        let server = Server::from_config(&self.config, run, self.env).map_err(Error::data)?;
        (self.params, self.tags) = (facts::params(run), facts::tags(run, self.env));
        let client = Client::new(&server.uri, server.authorization.clone());
        self.server = Some((server, client));
        self.push()
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        if self.server.is_none() {
            return Ok(());
        }
        if event["event"] == "end" {
            self.status = match event["exit_code"].as_u64().map(RunEnd::from_exit_code) {
                Some(RunEnd::Done) => "FINISHED",
                Some(RunEnd::Stopped) => "KILLED",
                _ => "FAILED",
            };
        }
        self.metrics.extend(facts::metrics(event));
        let beyond = self.metrics.len().saturating_sub(WAITING);
        self.metrics.drain(..beyond);
        self.lost += beyond;
        self.push()
    }

    fn idle(&mut self) -> Result<()> {
        self.push()
    }

    fn end(&mut self) -> Result<()> {
        let deadline = self.run.waits_until().and_then(|until| until.checked_sub(MARGIN));
        let deadline = deadline.unwrap_or_else(|| Instant::now() + self.pace.request);
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut ended = false;
        loop {
            if self.server.is_none() || left().is_zero() {
                break;
            }
            let is_last = self.run_id.is_some() && self.is_empty();
            let Err(failed) = (if is_last { self.finish() } else { self.attempt() }) else {
                ended = is_last;
                if ended {
                    break;
                }
                continue;
            };
            let again = failed.again;
            if let Err(e) = self.failed(failed) {
                tracing::info!("{}", e.message);
                self.given_up = self.given_up.take().or((!again).then_some(e.message));
            }
            // Nobody waits for a server that has never answered.
            match again {
                true if self.run_id.is_none() => break,
                true => std::thread::sleep(self.pace.pause.min(left())),
                false if is_last => break,
                false => {}
            }
        }
        self.outcome(ended)
    }
}

impl Tracking {
    fn new(config: MlFlow, env: Env, pace: Pace) -> Self {
        Self {
            config,
            env,
            pace,
            run: ObservedRun::default(),
            server: None,
            run_id: None,
            params: Pairs::new(),
            tags: Pairs::new(),
            metrics: VecDeque::new(),
            lost: 0,
            lost_pairs: 0,
            given_up: None,
            not_before: Instant::now(),
            pause: pace.pause,
            warned: false,
            status: "FAILED",
        }
    }

    fn is_empty(&self) -> bool {
        self.params.is_empty() && self.tags.is_empty() && self.metrics.is_empty()
    }

    /// Sends a batch if it is time and there is something to send.
    fn push(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.server.is_none() || now < self.not_before || (self.run_id.is_some() && self.is_empty()) {
            return Ok(());
        }
        match self.attempt() {
            Ok(()) => {
                (self.pause, self.not_before) = (self.pace.pause, Instant::now() + self.pace.every);
                Ok(())
            }
            Err(failed) => self.failed(failed),
        }
    }

    /// After a failure: the next attempt is put off, or what was refused is given up. The first is an error.
    fn failed(&mut self, failed: Failed) -> Result<()> {
        let Failed { why, again, .. } = failed;
        let why = if again {
            self.not_before = Instant::now() + self.pause;
            self.pause = (self.pause * 2).min(self.pace.most);
            format!("{why}; it is tried again, and values wait")
        } else if self.run_id.is_none() {
            self.server = None;
            format!("{why}; this run is not logged there")
        } else {
            self.drop_batch();
            why
        };
        if !std::mem::replace(&mut self.warned, true) {
            return Err(Error::data(why));
        }
        if !again {
            self.given_up.get_or_insert(why);
        }
        Ok(())
    }

    /// Sends one batch; before the first, the run is created or found again.
    fn attempt(&mut self) -> Answered<()> {
        if self.run_id.is_none() {
            self.connect()?;
        }
        let (Some((_, client)), Some(run)) = (&self.server, &self.run_id) else { return Ok(()) };
        let api = Api { client, run: &self.run, most: self.pace.request };
        let none = Pairs::new();
        match (self.params.is_empty(), self.tags.is_empty()) {
            (false, _) => api.log(run, &[], &self.params[..self.params.len().min(PARAMS)].to_vec(), &none)?,
            (_, false) => api.log(run, &[], &none, &self.tags)?,
            _ if self.metrics.is_empty() => return Ok(()),
            _ => {
                let batch: Vec<Metric> = self.metrics.iter().take(METRICS).cloned().collect();
                api.log(run, &batch, &none, &none)?;
            }
        }
        self.next_batch();
        Ok(())
    }

    /// Forgets the first batch, and returns how many metrics, and how many parameters and tags it had.
    fn next_batch(&mut self) -> (usize, usize) {
        if !self.params.is_empty() {
            (0, self.params.drain(..self.params.len().min(PARAMS)).count())
        } else if !self.tags.is_empty() {
            (0, self.tags.drain(..).count())
        } else {
            (self.metrics.drain(..self.metrics.len().min(METRICS)).count(), 0)
        }
    }

    /// Gives up the first batch, which was refused.
    fn drop_batch(&mut self) {
        let (metrics, pairs) = self.next_batch();
        self.lost += metrics;
        self.lost_pairs += pairs;
    }

    fn connect(&mut self) -> Answered<()> {
        let Some((server, client)) = &self.server else { return Ok(()) };
        let api = Api { client, run: &self.run, most: self.pace.request };
        let Server { uri, experiment, .. } = server;
        let path = self.kept();
        let kept =
            base::files::read(&path).ok().and_then(|text| serde_json::from_slice::<LoggedRun>(&text).ok());
        if let Some(kept) = kept.filter(|kept| (&kept.uri, &kept.experiment) == (uri, experiment))
            && let Some(known) = api.parameters(&kept.run_id)?
        {
            api.update(&kept.run_id, "RUNNING", None)?;
            // MLflow refuses a change of a parameter.
            let (old, new) =
                std::mem::take(&mut self.params).into_iter().partition(|(k, _)| known.contains_key(k));
            let old: Pairs = old;
            let changed = old.into_iter().filter(|(key, value)| known[key] != value.as_str());
            self.tags.extend(changed.map(|(key, value)| (format!("changed.{key}"), value)));
            (self.params, self.run_id) = (new, Some(kept.run_id));
            return Ok(());
        }
        let id = api.experiment(experiment)?;
        let run_id = api.create(&id, &self.run.name, now(), &self.tags)?;
        self.tags.clear();
        let kept = LoggedRun { uri: uri.clone(), experiment: experiment.clone(), run_id: run_id.clone() };
        let written = std::fs::create_dir_all(files::folder(&path)).map_err(Error::from);
        if let Err(e) = written.and_then(|()| files::replace_json(&path, &kept)) {
            tracing::warn!("a resume will log to a new run: {}", e.message);
        }
        self.run_id = Some(run_id);
        Ok(())
    }

    /// The file with the id of the run.
    fn kept(&self) -> PathBuf {
        self.run.folder.join(FOLDER).join("mlflow.json")
    }

    /// Sets the state of the run, after everything else.
    fn finish(&self) -> Answered<()> {
        let (Some((_, client)), Some(run)) = (&self.server, &self.run_id) else { return Ok(()) };
        Api { client, run: &self.run, most: self.pace.request }.update(run, self.status, Some(now()))
    }

    /// What has not arrived.
    fn outcome(&self, ended: bool) -> Result<()> {
        let why = self.given_up.as_ref();
        let Some((server, _)) = &self.server else {
            return why.map_or(Ok(()), |why| Err(Error::data(why.clone())));
        };
        let uri = &server.uri;
        let pairs = self.lost_pairs + self.params.len() + self.tags.len();
        let what = match (&self.run_id, self.lost + self.metrics.len(), pairs) {
            (None, ..) => format!("{uri} was never reached; this run is not logged there"),
            (_, 0, 0) if ended => return Ok(()),
            (_, 0, 0) => format!("the end of the run was not logged to {uri}"),
            (_, 0, n) => format!("{n} parameters and tags were not logged to {uri}"),
            (_, n, 0) => format!("{n} values were not logged to {uri}"),
            (_, n, pairs) => {
                format!("{n} values were not logged to {uri}, nor were {pairs} parameters and tags")
            }
        };
        Err(Error::data(why.map_or(what.clone(), |why| format!("{what}: {why}"))))
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
