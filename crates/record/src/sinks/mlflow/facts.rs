//! What is logged of a run, and where.

use super::MlFlow;
use super::api::{Metric, Pairs};
use crate::ObservedRun;
use crate::sinks::{metrics as of_split, number};
use data_encoding::BASE64;
use serde_json::Value;

/// Longest name of a parameter or metric, and longest value: older servers take 500 characters, newer ones 6000.
const NAME: usize = 250;
const VALUE: usize = 500;

/// Reads an environment variable.
pub type Env = fn(&str) -> Option<String>;

/// The server, the experiment and the credentials.
#[derive(Debug)]
pub struct Server {
    pub uri: String,
    pub experiment: String,
    /// The value of the header.
    pub authorization: Option<String>,
}

/// Why an address is not the address of a server.
pub fn wrong_uri(uri: &str) -> Option<&'static str> {
    let Some(rest) = uri.strip_prefix("http://").or_else(|| uri.strip_prefix("https://")) else {
        return Some("expected the address of a server, `http://…` or `https://…`");
    };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        return Some("credentials belong in MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD");
    }
    host.is_empty().then_some("has no host")
}

impl Server {
    /// By the keys and the environment.
    pub fn from_config(config: &MlFlow, run: &ObservedRun, env: Env) -> Result<Self, String> {
        // A file that the value comes from may end with a newline.
        let line = |value: String| value.trim_end_matches(['\r', '\n']).to_owned();
        let set = |name: &str| env(name).map(line).filter(|value| !value.is_empty());
        let uri = match &config.uri {
            Some(uri) => uri.clone(),
            None => {
                let uri = set("MLFLOW_TRACKING_URI");
                let uri = uri.ok_or("neither `uri` nor MLFLOW_TRACKING_URI names a server")?;
                wrong_uri(&uri).map_or(Ok(()), |why| Err(format!("MLFLOW_TRACKING_URI: {why}")))?;
                uri
            }
        };
        let experiment = config.experiment.clone().or_else(|| set("MLFLOW_EXPERIMENT_NAME"));
        let authorization = match (set("MLFLOW_TRACKING_TOKEN"), set("MLFLOW_TRACKING_USERNAME")) {
            (Some(token), _) => Some(format!("Bearer {token}")),
            (None, Some(user)) => {
                let password = set("MLFLOW_TRACKING_PASSWORD").unwrap_or_default();
                Some(format!("Basic {}", BASE64.encode(format!("{user}:{password}").as_bytes())))
            }
            (None, None) => None,
        };
        let experiment = experiment.unwrap_or_else(|| run.name.clone());
        Ok(Self { uri: uri.trim_end_matches('/').to_owned(), experiment, authorization })
    }
}

/// The values of the spec.
pub fn params(run: &ObservedRun) -> Pairs {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    run.spec.iter().map(|(key, value)| (name(key), cut(&shown(value), VALUE))).collect()
}

pub fn tags(run: &ObservedRun, env: Env) -> Pairs {
    let of = |path: &str| run.run.pointer(path).and_then(Value::as_str).map(str::to_owned);
    let argv = run.run["argv"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let command = argv.collect::<Vec<_>>().join(" ");
    let tags = [
        ("mlflow.source.name", Some(command)),
        ("mlflow.source.type", Some("LOCAL".to_owned())),
        ("mlflow.source.git.commit", of("/git/commit")),
        ("mlflow.user", env("USER")),
        ("host", of("/host/name")),
        ("world", run.run["world"].as_u64().map(|n| n.to_string())),
        ("backend", of("/backend")),
        ("launcher", of("/launcher")),
        ("spec_hash", of("/spec_hash")),
        ("ddp_run", of("/versions/ddp_run")),
        ("folder", Some(run.folder.display().to_string())),
        ("set", Some(run.set.join(" "))),
    ];
    let set = tags.into_iter().filter_map(|(name, value)| Some((name, value.filter(|v| !v.is_empty())?)));
    set.map(|(name, value)| (name.to_owned(), cut(&value, VALUE))).collect()
}

/// The values of an event, named as TensorBoard's.
pub fn metrics(event: &Value) -> Vec<Metric> {
    let mut values: Vec<(String, f64)> = Vec::new();
    match event["event"].as_str() {
        Some("step") => {
            let names = event.as_object().into_iter().flatten().map(|(name, _)| name);
            let names = names.filter(|name| !["event", "step", "epoch", "time"].contains(&name.as_str()));
            values.extend(names.filter_map(|of| Some((name(&format!("step/{of}")), number(event, of)?))));
        }
        Some("epoch") => {
            for split in ["train", "val"] {
                values.extend(of_split(event, split).map(|(of, x)| (name(&format!("{split}/{of}")), x)));
            }
            values.extend(number(event, "seconds").map(|x| ("epoch/seconds".to_owned(), x)));
        }
        _ => {}
    }
    let time = (number(event, "time").unwrap_or(0.0) * 1e3) as u64;
    let step = event["step"].as_u64().unwrap_or(0);
    values.into_iter().map(|(name, value)| Metric { name, value, time, step }).collect()
}

/// A name as MLflow takes it.
pub fn name(text: &str) -> String {
    let taken = |c: char| c.is_alphanumeric() || "_-. /".contains(c);
    let text: String = text.chars().map(|c| if taken(c) { c } else { '_' }).take(NAME).collect();
    // It is a path there, and is refused with its whole batch if the path could be shorter.
    let parts = text.split('/').map(|part| if ["", ".", ".."].contains(&part) { "_" } else { part });
    parts.collect::<Vec<_>>().join("/")
}

/// The first characters of a text.
fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}
