//! `csv`: two tables, one row a step line and one an epoch.

use super::{FOLDER, ObserverConfig};
use crate::appender::Appender;
use crate::{EventObserver, ObservedRun};
use base::error::{Error, IoContext, Result};
use base::files;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use smart_default::SmartDefault;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes `steps.csv` and `epochs.csv`, with a row for each `step` and `epoch` line of `metrics.jsonl`, without the times of ranks. A run that resumes removes
/// the rows after its position, which are repeated. Columns stay where they are; a new one is added after the others.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-changes-results" = false))]
pub struct Csv {
    /// The folder of the two files; a relative path is in the run's folder.
    #[default(FOLDER.into())]
    #[schemars(extend("format" = "path"))]
    folder: PathBuf,
}

impl ObserverConfig for Csv {
    type Observer = Tables;

    fn observer(&self) -> Tables {
        Tables { folder: self.folder.clone(), tables: None }
    }
}

pub struct Tables {
    folder: PathBuf,
    /// Steps and epochs; `None` if they can't be written.
    tables: Option<[Table; 2]>,
}

impl EventObserver for Tables {
    fn start(&mut self, run: &ObservedRun) -> Result<()> {
        let folder = run.path(&self.folder);
        fs::create_dir_all(&folder).doing("create", &folder)?;
        // A table keeps the rows below a number: steps count from 1, and epochs from 0.
        let steps = Table::open(folder.join("steps.csv"), "step", run.step.saturating_add(1))?;
        self.tables = Some([steps, Table::open(folder.join("epochs.csv"), "epoch", run.epochs)?]);
        Ok(())
    }

    fn event(&mut self, event: &Value) -> Result<()> {
        let (Some([steps, epochs]), Some(keys)) = (&mut self.tables, event.as_object()) else {
            return Ok(());
        };
        let table = match event["event"].as_str() {
            Some("step") => steps,
            Some("epoch") => epochs,
            _ => return Ok(()),
        };
        let mut cells = Vec::new();
        flatten(keys, "", &mut cells);
        cells.retain(|(name, _)| name != "event");
        table.add(&cells)
    }
}

/// `{"train": {"loss": 1.5}}` as `train.loss`, 1.5. Lists, which have a value for each rank, and flags, which few rows have, are left
/// out: a resumed run has the columns of one that was not interrupted.
fn flatten(keys: &Map<String, Value>, prefix: &str, cells: &mut Vec<(String, String)>) {
    for (name, value) in keys {
        let name = format!("{prefix}{name}");
        match value {
            Value::Object(inner) => flatten(inner, &format!("{name}."), cells),
            Value::Array(_) | Value::Bool(_) => {}
            Value::Null => cells.push((name, "NaN".to_owned())),
            Value::String(text) => cells.push((name, text.clone())),
            other => cells.push((name, other.to_string())),
        }
    }
}

/// A file of rows. The names of its columns are its first line.
struct Table {
    /// Empty before the first row.
    columns: Vec<String>,
    rows: Appender,
}

impl Table {
    /// Opens a file for appending. Of an existing one, rows whose `key` is not below `limit` are removed, and a row that is
    /// incomplete.
    ///
    /// # Errors
    /// An I/O error, or the file is another table: it is left alone.
    fn open(path: PathBuf, key: &str, limit: u64) -> Result<Self> {
        let mut columns = Vec::new();
        // Others, such as pipes, can't be read back.
        if path.is_file() {
            let found = files::read(&path).doing("read", &path)?;
            let (names, mut rows) = parse(&path, &found)?;
            let missing = |column: &&str| !names.is_empty() && names.iter().all(|name| name != column);
            if let Some(column) = [key, "step", "epoch", "lr"].iter().find(|column| missing(column)) {
                let why = format!("{} is another table: it has no column `{column}`", path.display());
                return Err(Error::data(why));
            }
            let at = names.iter().position(|name| name == key).unwrap_or(0);
            rows.retain(|row| row[at].parse().is_ok_and(|number: u64| number < limit));
            let kept = text(&names, &rows);
            if kept != found {
                files::replace(&path, &kept)?;
            }
            columns = names;
        }
        Ok(Self { columns, rows: Appender::open(&path)? })
    }

    fn add(&mut self, cells: &[(String, String)]) -> Result<()> {
        let is_new = |name: &&String| !self.columns.contains(name);
        let new: Vec<String> = cells.iter().map(|(name, _)| name).filter(is_new).cloned().collect();
        let columns = [self.columns.as_slice(), &new].concat();
        if self.columns.is_empty() {
            self.rows.append(&line(&columns))?;
            self.columns = columns;
        } else if !new.is_empty() && self.rows.path().is_file() {
            self.widen(columns)?;
        }
        let cell =
            |column: &String| cells.iter().find(|(name, _)| name == column).map_or("", |(_, cell)| cell);
        let row: Vec<&str> = self.columns.iter().map(cell).collect();
        self.rows.append(&line(&row))
    }

    /// Writes the file anew with more columns, whose cells are empty so far.
    fn widen(&mut self, columns: Vec<String>) -> Result<()> {
        let path = self.rows.path().to_owned();
        let (_, mut rows) = parse(&path, &files::read(&path).doing("read", &path)?)?;
        rows.iter_mut().for_each(|row| row.resize(columns.len(), String::new()));
        files::replace(&path, &text(&columns, &rows))?;
        self.rows = Appender::open(&path)?;
        self.columns = columns;
        Ok(())
    }
}

/// Names of the columns and the rows that are complete.
fn parse(path: &Path, bytes: &[u8]) -> Result<(Vec<String>, Vec<Vec<String>>)> {
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(&bytes[..whole]);
    let cells = |record: csv::StringRecord| record.iter().map(str::to_owned).collect::<Vec<_>>();
    let read = |e: csv::Error| Error::data(format!("cannot read {}: {e}", path.display()));
    let mut rows = reader.records().map(|record| record.map(cells).map_err(read));
    let names = rows.next().transpose()?.unwrap_or_default();
    let mut rows = rows.collect::<Result<Vec<_>>>()?;
    rows.retain(|row| row.len() == names.len());
    Ok((names, rows))
}

/// The whole file; empty without columns.
fn text(names: &[String], rows: &[Vec<String>]) -> Vec<u8> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut text = line(names);
    rows.iter().for_each(|row| text.extend(line(row)));
    text
}

fn line(cells: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Neither fails: it writes to memory, and there is one record.
    let _ = writer.write_record(cells);
    writer.into_inner().unwrap_or_default()
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
