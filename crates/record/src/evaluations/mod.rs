//! `evaluations/` in a run's folder: what evaluations found by class and by sample, for the report. One JSON file an evaluation, named by its step;
//! the newest few are kept, and the newest few of those that were the best when they were made, so that a resume from an earlier
//! checkpoint still has some.

mod classes;

pub use classes::{ClassRow, Classes, Figures, class_name};

use super::nan_if_null;
use base::error::{Error, IoContext, Result};
use base::files::{AtomicFile, remove_begun};
use checkpoint::Score;
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The name of the folder.
const FOLDER: &str = "evaluations";

/// The version that this program writes, and the newest that it reads.
const VERSION: u32 = 1;

/// Evaluations of either kind that are kept.
const KEPT: usize = 4;

/// An evaluation of the validation split.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRecord {
    pub(super) version: u32,
    /// Optimizer steps before it.
    pub step: u64,
    /// Counted from 0.
    pub epoch: u64,
    /// The metric that ranks checkpoints, with `val.` or `train.` before its name.
    pub metric: String,
    /// Its value after this epoch.
    #[serde(deserialize_with = "nan_if_null")]
    pub value: f64,
    /// No evaluation before was better.
    pub best: bool,
    /// `val.loss`, by which equal values are ranked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub val_loss: Option<f64>,
    /// Predictions by class; `None` if samples do not have one class each, or they are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<Classes>,
    /// The samples with the largest losses, in this order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<WorstSample>,
    /// What a language model generates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<GeneratedText>,
}

/// A sample that the model is wrong or unsure about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstSample {
    /// In the validation split, from 0.
    pub index: u64,
    /// The name of its class, or its number.
    pub class: String,
    /// The name of the class that the model predicts, or its number.
    pub predicted: String,
    /// The probability of the class that the model predicts, 0 to 1.
    #[serde(deserialize_with = "nan_if_null")]
    pub probability: f64,
    /// `-ln` of the probability of its class.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// The picture of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picture: Option<RecordedPicture>,
    /// Where it is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Columns and cells of a row, the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<(String, String)>,
    /// Further columns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub more_cells: usize,
    /// The beginning of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A small image.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordedPicture {
    /// In pixels.
    pub width: usize,
    /// In pixels.
    pub height: usize,
    /// PNG, in base64.
    pub png: String,
}

/// A text that the model continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GeneratedText {
    /// The beginning of a sample of the validation split.
    pub prompt: String,
    /// What follows it.
    pub text: String,
    /// It is shorter than others because its time was over.
    #[serde(default)]
    pub cut: bool,
    /// Where the prompt is stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl EvaluationRecord {
    /// The record of an evaluation after `step` steps, in `epoch`; its metric follows.
    pub fn new(step: u64, epoch: u64) -> Self {
        Self {
            version: VERSION,
            step,
            epoch,
            metric: String::new(),
            value: f64::NAN,
            best: false,
            val_loss: None,
            classes: None,
            worst: Vec::new(),
            texts: Vec::new(),
        }
    }

    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        self.classes.is_none() && self.worst.is_empty() && self.texts.is_empty()
    }
}

/// The folder of a run's evaluations, on the rank that writes it.
#[derive(Debug)]
pub struct Evaluations {
    folder: PathBuf,
    /// The metric that ranks them.
    metric: &'static str,
    prefers_larger: bool,
    /// Step, and the score of one that was the best then; oldest first.
    kept: Vec<(u64, Option<Score>)>,
}

impl Evaluations {
    /// Removes the evaluations after `step`, because those steps are repeated, and what a killed process was writing.
    pub fn open(out_dir: &Path, step: u64, metric: &'static str, prefers_larger: bool) -> Self {
        let folder = out_dir.join(FOLDER);
        let mut kept = Vec::new();
        remove_begun(&folder, is_record);
        for record in read(out_dir) {
            if record.step > step {
                // Only the report reads it: that is no reason to end a run.
                if let Err(e) = remove(&folder, record.step) {
                    tracing::warn!("{e}");
                }
            } else {
                // Values of another metric do not compare.
                let score = Score::new(record.value, prefers_larger, record.val_loss);
                kept.push((record.step, score.filter(|_| record.best && record.metric == metric)));
            }
        }
        Self { folder, metric, prefers_larger, kept }
    }

    /// Writes an evaluation, with the `value` of the metric that ranks them (`None`: it was not measured), and removes those that are no
    /// longer kept. One of the same step is replaced.
    ///
    /// # Errors
    /// A file can't be written or removed.
    pub fn write(&mut self, record: EvaluationRecord, value: Option<f64>) -> Result<()> {
        let value = value.unwrap_or(f64::NAN);
        let step = record.step;
        self.kept.retain(|(other, _)| *other != step);
        let before = self.kept.iter().rev().find_map(|(_, best)| *best);
        let score = Score::new(value, self.prefers_larger, record.val_loss);
        let best = score.filter(|score| before.is_none_or(|before| score.beats(before)));
        let metric = self.metric.to_owned();
        let record = EvaluationRecord { metric, value, best: best.is_some(), ..record };
        std::fs::create_dir_all(&self.folder).doing("create", &self.folder)?;
        let mut text = serde_json::to_vec(&record)
            .map_err(|e| Error::internal(format!("an evaluation is not JSON: {e}")))?;
        text.push(b'\n');
        // Without waiting for the disk: after a power failure a damaged file is left out.
        let place = self.folder.join(file_name(step));
        let written = AtomicFile::new(&place).and_then(|mut draft| {
            draft.write_all(&text)?;
            draft.put()
        });
        written.doing("write", &place)?;
        self.kept.push((step, best));
        self.prune()
    }

    fn prune(&mut self) -> Result<()> {
        let newest = self.kept.len().saturating_sub(KEPT);
        let bests = self.kept.iter().filter(|(_, best)| best.is_some()).count();
        let (mut at, mut best_at) = (0, 0);
        let mut gone = Vec::new();
        self.kept.retain(|(step, best)| {
            let stays = at >= newest || (best.is_some() && best_at + KEPT >= bests);
            at += 1;
            best_at += usize::from(best.is_some());
            if !stays {
                gone.push(*step);
            }
            stays
        });
        // Also after one that can't be removed.
        gone.into_iter().map(|step| remove(&self.folder, step)).fold(Ok(()), Result::and)
    }
}

/// Removes an evaluation, if it is there.
fn remove(folder: &Path, step: u64) -> Result<()> {
    let file = folder.join(file_name(step));
    match std::fs::remove_file(&file) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.doing("remove", &file),
    }
}

fn is_record(name: &str) -> bool {
    name.starts_with("step-") && name.ends_with(".json")
}

/// Removes what a killed process was writing. No process may be writing now.
pub fn remove_unfinished(out_dir: &Path) {
    remove_begun(&out_dir.join(FOLDER), is_record);
}

fn file_name(step: u64) -> String {
    format!("step-{step:08}.json")
}

/// The evaluations in a run's folder, oldest first. Files that are not an evaluation, or are of a newer version, are left out: the report
/// is about what can be read.
pub fn read(out_dir: &Path) -> Vec<EvaluationRecord> {
    let entries = std::fs::read_dir(out_dir.join(FOLDER)).into_iter().flatten().flatten();
    let mut records: Vec<EvaluationRecord> = entries
        .filter_map(|entry| {
            let record: EvaluationRecord =
                serde_json::from_slice(&base::files::read(&entry.path()).ok()?).ok()?;
            let own = entry.file_name().to_str() == Some(&file_name(record.step));
            (own && record.version <= VERSION).then_some(record)
        })
        .collect();
    records.sort_by_key(|record| record.step);
    records
}

#[cfg(test)]
mod tests;
