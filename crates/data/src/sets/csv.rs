//! `csv`: the rows of a table, features and a target.

use super::csv_joined::{Others, check_unlabelled, joined, without_targets};
use super::csv_table::RawTable;
use super::table::{Sections, TableKeys};
use crate::split::SplitOptions;
use crate::store::{NamedFile, absolute, check_names_below};
use crate::{DataFacts, DatasetSource, Encoding, Splits, TableEncoding};
use base::error::{Error, Result};
use base::files::folder;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::Fields;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table with a header line, or one for each split: `path` is that of training, `val` and `test` are beside it; or `path` is a folder,
/// and `train`, `val` and `test` are in it. Columns of several tables are found by name; a table that has others than that of training
/// is refused, and so is one that has texts in a column of numbers, or a class that training lacks. Means, deviations and empty cells
/// are those of the training rows; a category that only another split has is one, too, and the run warns of it. A test table in which
/// no row has a target is left out.
#[derive(Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["target"]))]
pub(super) struct CsvSource {
    #[serde(skip)]
    pub file: NamedFile,
    /// The folder from which `val` and `test` are named.
    #[serde(skip)]
    pub folder: PathBuf,
    /// Separator of columns: one ASCII character.
    #[default = ","]
    pub delimiter: String,
    /// The training table in `path`, which is a folder then.
    pub train: Option<String>,
    /// The validation table: a path from `path` if `train` is set, else from the folder of the training table. `val_split` has no effect
    /// with it.
    pub val: Option<String>,
    /// The test table: a path as that of `val`.
    pub test: Option<String>,
    /// The column that the model predicts.
    pub target: String,
    #[serde(skip)]
    pub keys: TableKeys,
    #[serde(skip)]
    pub split: SplitOptions,
}

/// Reads the `[dataset]` table.
pub fn csv(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let mut file = NamedFile::read(fields);
    let source: CsvSource = fields.config();
    check_names_below(
        fields,
        [("train", &source.train), ("val", &source.val), ("test", &source.test)],
        "the folder in `path`",
    );
    if source.delimiter.len() != 1 {
        fields.problem("delimiter", "expected one ASCII character");
    }
    let keys = TableKeys::read(fields, true, &source.target).unwrap_or_default();
    let split = SplitOptions::of_tables(fields, source.val.is_some().then_some("with `val`"));
    let folder = match &source.train {
        Some(train) => {
            let folder = file.path.clone();
            file.path.push(train);
            folder
        }
        None => folder(&file.path).to_owned(),
    };
    Arc::new(CsvSource { file, folder: absolute(&folder), keys, split, ..source })
}

impl DatasetSource for CsvSource {
    fn facts(&self) -> DataFacts {
        self.keys.facts(&self.target)
    }

    fn check_files(&self) -> Result<()> {
        let path = absolute(&self.file.path);
        if path.is_dir() && !self.file.is_published() {
            let hint = "`[dataset] train` names the training table in it, `val` and `test` the others";
            return Err(Error::data(format!("{} is a folder", path.display())).hint(hint));
        }
        if self.train.is_some() && self.folder.is_file() {
            let what = format!("{} is a file, but `train` is set too", self.folder.display());
            return Err(Error::data(what).hint("set `[dataset] path` to the folder, or remove `train`"));
        }
        self.file.is_there()?;
        self.others().into_iter().try_for_each(|(key, path)| {
            let missing =
                || Error::data(format!("{} is missing, which `[dataset] {key}` names", path.display()));
            path.is_file().then_some(()).ok_or_else(|| {
                let from = match self.train {
                    Some(_) => "`[dataset] path`",
                    None => "the folder of the training table",
                };
                missing().hint(format!("copy it there, or correct the name, which is a path from {from}"))
            })
        })
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.check_files()?;
        self.file.prepare(&|path| self.read(path, None).map(drop), say)?;
        let Some((_, path)) = self.others().into_iter().find(|(key, _)| *key == TEST) else { return Ok(()) };
        let test = self.table(&path, &self.keys.blank_marks)?;
        if let Some(why) = without_targets(&test, &self.target)
            && self.check_unlabelled(&test).is_ok()
        {
            let path = path.display();
            say(&format!("{path}: left out, because {why}; `ddp-run predict` takes such a table"));
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        let others = self.others().into_iter().map(|(_, path)| path);
        [self.file.path.clone()].into_iter().chain(others).filter(|path| path.is_file()).collect()
    }

    fn open(&self) -> Result<Splits> {
        self.read(&self.file.path, None)
    }

    fn open_encoded(&self, known: &Encoding) -> Result<Splits> {
        self.read(&self.file.path, known.table())
    }
}

/// The key of the test table.
const TEST: &str = "test";

impl CsvSource {
    /// The tables besides that of training, by their keys.
    fn others(&self) -> Vec<(&'static str, PathBuf)> {
        let path = |(key, name): (_, &Option<String>)| Some((key, self.folder.join(name.as_ref()?)));
        [("val", &self.val), (TEST, &self.test)].into_iter().filter_map(path).collect()
    }

    /// `open` reports the error.
    fn check_unlabelled(&self, test: &RawTable) -> Result<()> {
        let train = self.table(&self.file.path, &self.keys.blank_marks)?;
        let target = train.column(&self.target, "target")?;
        check_unlabelled(&train, test, &self.keys.columns(&train, target)?)
    }

    fn table(&self, path: &Path, blanks: &[String]) -> Result<RawTable> {
        RawTable::read(path, self.delimiter.bytes().next().unwrap_or(b','), blanks.to_vec())
    }

    fn read(&self, path: &Path, known: Option<&TableEncoding>) -> Result<Splits> {
        let blanks = known.map_or(&self.keys.blank_marks, |known| &known.blank_marks);
        let train = self.table(path, blanks)?;
        let mut others = Others::default();
        for (key, path) in self.others() {
            let table = self.table(&path, blanks)?;
            match key {
                TEST => others.test = Some(table),
                _ => others.val = Some(table),
            }
        }
        let (table, sections) = match others.is_empty() {
            true => {
                let sections = Sections { train: train.rows.len(), ..Sections::default() };
                (train, sections)
            }
            false => joined(train, others, &self.keys, &self.target, known)?,
        };
        self.keys.splits(table, &self.target, sections, &self.split, known)
    }
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
