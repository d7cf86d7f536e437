//! `csv`: the rows of a table, features and a target.

use super::csv_table::RawTable;
use super::table::{Sections, TableKeys};
use crate::data::split::SplitOptions;
use crate::data::store::NamedFile;
use crate::data::{DataFacts, DatasetSource, Encoding, Splits, TableEncoding};
use crate::error::Result;
use crate::spec::Fields;
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A table with a header line.
#[derive(Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("required" = ["target"]))]
pub(super) struct CsvSource {
    #[serde(skip)]
    pub file: NamedFile,
    /// Separator of columns: one ASCII character.
    #[default = ","]
    pub delimiter: String,
    /// The column that the model predicts.
    pub target: String,
    #[serde(skip)]
    pub keys: TableKeys,
    #[serde(skip)]
    pub split: SplitOptions,
}

/// Reads the `[dataset]` table.
pub fn csv(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::read(fields);
    let source: CsvSource = fields.config();
    if source.delimiter.len() != 1 {
        fields.problem("delimiter", "expected one ASCII character");
    }
    let keys = TableKeys::read(fields, true, &source.target).unwrap_or_default();
    let split = SplitOptions::of_rows(fields);
    Arc::new(CsvSource { file, keys, split, ..source })
}

impl DatasetSource for CsvSource {
    fn facts(&self) -> DataFacts {
        self.keys.facts(&self.target)
    }

    fn check_files(&self) -> Result<()> {
        self.file.is_there().map(drop)
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.file.prepare(&|path| self.read(path, None).map(drop), say)
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.file.path.clone()).filter(|path| path.is_file()).into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        self.read(&self.file.path, None)
    }

    fn open_encoded(&self, known: &Encoding) -> Result<Splits> {
        self.read(&self.file.path, known.table())
    }
}

impl CsvSource {
    fn read(&self, path: &Path, known: Option<&TableEncoding>) -> Result<Splits> {
        let delimiter = self.delimiter.bytes().next().unwrap_or(b',');
        let blanks = known.map_or(&self.keys.blank_marks, |known| &known.blank_marks);
        let table = RawTable::read(path, delimiter, blanks.clone())?;
        let sections = Sections { train: table.rows.len(), ..Sections::default() };
        self.keys.splits(table, &self.target, sections, &self.split, known)
    }
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
