//! `prediction.json`: what `ddp-run plan --cluster` expected of a job, beside which a run's report shows what happened.

use base::error::{Error, IoContext, Result};
use base::files;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// A job on a cluster, by number of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The spec's `name`.
    pub job: String,
    /// The hash of the job's plan, as in `run.json`.
    pub spec_hash: String,
    /// The name of the cluster.
    pub cluster: String,
    /// The currency of `cost`.
    pub currency: String,
    /// By number of processes, ascending.
    pub rows: Vec<PredictedRow>,
    /// In the order of their weight for readers.
    pub assumptions: Vec<String>,
}

/// One number of processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PredictedRow {
    /// Number of processes.
    pub world: usize,
    /// Nodes that they are on.
    pub nodes: usize,
    /// Compute threads of each process.
    pub threads: usize,
    /// Seconds of an optimizer step.
    pub step_s: f64,
    /// Of these, data, forward and backward passes and update. The backward pass includes the cost of communication beside it.
    pub compute_s: f64,
    /// Of these, the time that a rank waits for communication after its backward pass.
    pub exposed_s: f64,
    /// All all-reduces of a step, beside the backward pass or not.
    pub communication_s: f64,
    /// Samples of all processes.
    pub samples_per_s: f64,
    /// Samples per second, relative to as many processes that are each as fast as one alone on a node: 0 to 1, or more where
    /// one process is not faster with all its threads than with fewer.
    pub efficiency: f64,
    /// Seconds until a checkpoint is written, beside training; unknown without the speed of storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_s: Option<f64>,
    /// Seconds for which a checkpoint holds up the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_up_s: Option<f64>,
    /// Optimizer steps of the job; unknown, like the next two, if it depends on data that has not been read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Seconds of the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_s: Option<f64>,
    /// The cost of the whole job; unknown without a price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
}

/// The prediction in a run's folder.
pub fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("prediction.json")
}

/// The one in a run's folder; `None` if it has none.
///
/// # Errors
/// As [`read`].
pub fn of_run(run_dir: &Path) -> Result<Option<Prediction>> {
    let path = path(run_dir);
    match files::read(&path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        bytes => parse(&path, &bytes.doing("read", &path)?).map(Some),
    }
}

/// Reads a file that the user names.
///
/// # Errors
/// It can't be read, or is something else.
pub fn read(path: &Path) -> Result<Prediction> {
    parse(path, &files::read(path).doing("read", path)?)
}

fn parse(path: &Path, bytes: &[u8]) -> Result<Prediction> {
    let refused = |why: &dyn std::fmt::Display| {
        let what = format!("{} is not a prediction: {why}", path.display());
        Error::usage(what).hint("`ddp-run plan SPEC --cluster FILE --prediction FILE` writes one")
    };
    let read: Prediction = serde_json::from_slice(bytes).map_err(|e| refused(&e))?;
    if read.rows.is_empty() {
        return Err(refused(&"it has no number of processes"));
    }
    if let Some(row) = read.rows.iter().find(|row| row.world == 0 || row.step_s <= 0.0) {
        return Err(refused(&format_args!("a step of {} processes takes {} s", row.world, row.step_s)));
    }
    Ok(read)
}

/// A prediction for two numbers of processes, for tests.
#[doc(hidden)]
pub fn sample() -> Prediction {
    let row = |world: usize| PredictedRow {
        world,
        nodes: 1,
        threads: 1,
        step_s: 0.125,
        compute_s: 0.1,
        exposed_s: 0.025,
        communication_s: 0.05,
        samples_per_s: 8.0 * world as f64,
        efficiency: 0.9,
        checkpoint_s: Some(2.0),
        held_up_s: Some(0.5),
        steps: Some(100),
        job_s: Some(12.5),
        cost: None,
    };
    Prediction {
        job: "a".into(),
        spec_hash: "00".into(),
        cluster: "b<c".into(),
        currency: "USD".into(),
        rows: vec![row(1), row(2)],
        assumptions: vec!["all ranks are equally fast".into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = path(dir.path());
        base::files::replace_json(&file, &sample()).unwrap();
        assert_eq!((read(&file).unwrap(), of_run(dir.path()).unwrap()), (sample(), Some(sample())));
        assert_eq!(of_run(&dir.path().join("none")).unwrap(), None);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("cost"), "an unknown cost is left out: {text}");
        std::fs::write(&file, "{}").unwrap();
        let error = read(&file).unwrap_err();
        assert!(error.message.contains("is not a prediction: missing field"), "{error}");
        let mut other = sample();
        other.rows[1].step_s = 0.0;
        base::files::replace_json(&file, &other).unwrap();
        assert!(read(&file).unwrap_err().message.ends_with("a step of 2 processes takes 0 s"));
        other.rows.clear();
        base::files::replace_json(&file, &other).unwrap();
        assert!(read(&file).unwrap_err().message.ends_with("it has no number of processes"));
    }
}
