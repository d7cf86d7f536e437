//! `csv`: the rows of a table, features and a target. Text columns are one-hot encoded; numeric columns are standardised
//! with the mean and standard deviation of the training rows only, so validation data does not leak into training.

use super::csv_remarks::remarks;
use super::csv_set::{CsvSet, Rows, Targets};
use super::csv_table::{BLANK_MARKS, CategoryIndex, ColumnType, RawTable};
use crate::data::fingerprint::digest_of_parts;
use crate::data::images::class_facts;
use crate::data::split::{Part, SplitOptions};
use crate::data::store::NamedFile;
use crate::data::{Content, DataFacts, Dataset, DatasetSource, FieldFacts, FieldKind, Splits};
use crate::error::{Error, Result};
use crate::spec::{Fields, choice};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

choice! {
    /// What to do with an empty cell.
    Blanks:
    /// Report it.
    Error = "error",
    /// Drop its row.
    Drop = "drop",
    /// Use the mean of the training rows.
    Mean = "mean",
    /// Use zero.
    Zero = "zero",
}

choice! {
    /// The type of the target.
    Task:
    /// A number.
    Regression = "regression",
    /// A class.
    Classification = "classification",
}

/// A table with a header line. Columns of numbers are inputs as they are; columns of text are one-hot. A run prints the
/// type that it detected for each column.
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
    /// The input columns. Default: all columns but the target.
    pub features: Option<Vec<String>>,
    /// The texts of a column and their order: `column = [texts]`. Default: from the file.
    // No value of the plan where it is not written.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub categories: BTreeMap<String, Vec<String>>,
    /// What to do with an empty cell.
    pub blanks: Blanks,
    /// Texts that count as empty.
    #[default(BLANK_MARKS.map(str::to_owned).to_vec())]
    pub blank_marks: Vec<String>,
    /// The type of the target.
    pub task: Task,
    /// Scale each column of numbers to mean 0 and standard deviation 1, both measured on the training split.
    #[default = true]
    pub standardise: bool,
    #[serde(skip)]
    pub standardise_target: bool,
    #[serde(skip)]
    pub split: SplitOptions,
}

// Read only for `regression`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
struct NumberTarget {
    /// Scale the target in the same way; only for `regression`. The loss is that of the scaled target; `mae` and `mse` are in
    /// the table's units.
    #[default = true]
    standardise_target: bool,
}

/// Reads the `[dataset]` table.
pub fn csv(fields: &mut Fields<'_>) -> Arc<dyn DatasetSource> {
    let file = NamedFile::read(fields);
    let source: CsvSource = fields.config();
    if source.delimiter.len() != 1 {
        fields.problem("delimiter", "expected one ASCII character");
    }
    if source.features.as_ref().is_some_and(|f| f.contains(&source.target)) {
        fields.problem("features", format!("names the target `{}`", source.target));
    }
    for (column, names) in &source.categories {
        let mut seen = BTreeSet::new();
        if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
            fields.problem_at(&["categories", column], format!("`{twice}` is listed twice"));
        }
    }
    let numbers = source.task == Task::Regression;
    let standardise_target =
        fields.config_if(numbers).is_some_and(|NumberTarget { standardise_target }| standardise_target);
    let split = SplitOptions::of_rows(fields);
    Arc::new(CsvSource { file, standardise_target, split, ..source })
}

impl DatasetSource for CsvSource {
    fn facts(&self) -> DataFacts {
        let target = match self.task {
            Task::Regression => Some(FieldFacts { shape: vec![1], kind: FieldKind::Float }),
            Task::Classification => self.categories.get(&self.target).map(|names| class_facts(names.len())),
        };
        DataFacts { target, ..DataFacts::default() }
    }

    fn prepare(&self, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.file.prepare(&|path| self.read(path).map(drop), say)
    }

    fn files(&self) -> Vec<PathBuf> {
        Some(self.file.path.clone()).filter(|path| path.is_file()).into_iter().collect()
    }

    fn open(&self) -> Result<Splits> {
        self.read(&self.file.path)
    }
}

impl CsvSource {
    fn read(&self, path: &Path) -> Result<Splits> {
        let delimiter = self.delimiter.bytes().next().unwrap_or(b',');
        let mut table = RawTable::read(path, delimiter, self.blank_marks.clone())?;
        let target = table.column(&self.target, "target")?;
        let columns = self.columns(&table, target)?;
        let rows = table.rows.len();
        self.handle_blanks(&mut table, &columns, target)?;
        if table.rows.is_empty() {
            let error = Error::data(format!("{} has no usable rows", table.path));
            return Err(match rows {
                0 => error,
                _ => error.hint("every row has a blank cell, and `blanks = \"drop\"` drops it"),
            });
        }
        let (train, val) = self.split.split(table.rows.len());
        let targets = self.targets(&table, target, &train)?;
        let kinds = columns
            .iter()
            .map(|&c| Ok((c, table.column_type(c, &self.categories)?)))
            .collect::<Result<Vec<(usize, ColumnType)>>>()?;
        let (width, values) = self.features(&table, &kinds, &train);
        let remarks = remarks(&table, &kinds, (target, &targets), &self.categories);
        let content = content(&table, columns.iter().chain([&target]));
        let rows = Arc::new(Rows { width, values, targets, remarks, content });
        let set = |part| Arc::new(CsvSet { rows: rows.clone(), part }) as Arc<dyn Dataset>;
        Ok(Splits { train: set(train), val: (self.split.val_split > 0.0).then(|| set(val)), test: None })
    }

    /// The feature columns: those in `features`, otherwise all but the target.
    fn columns(&self, table: &RawTable, target: usize) -> Result<Vec<usize>> {
        for name in self.categories.keys() {
            table.column(name, "categories")?;
        }
        match &self.features {
            Some(names) => names.iter().map(|name| table.column(name, "features")).collect(),
            None => Ok((0..table.header.len()).filter(|&c| c != target).collect()),
        }
    }

    /// Drops the rows with blank cells, or checks that blank cells can be filled. A blank target can't.
    fn handle_blanks(&self, table: &mut RawTable, columns: &[usize], target: usize) -> Result<()> {
        let blank_in = |table: &RawTable, row: usize| {
            columns.iter().chain([&target]).copied().find(|&c| table.is_blank(row, c))
        };
        if self.blanks == Blanks::Drop {
            let keep: Vec<bool> = (0..table.rows.len()).map(|r| blank_in(table, r).is_none()).collect();
            let mut keep = keep.into_iter();
            table.rows.retain(|_| keep.next().unwrap_or(true));
            return Ok(());
        }
        for row in 0..table.rows.len() {
            if table.is_blank(row, target) {
                return Err(Error::data(format!("{}: the target is blank", table.location(row, target)))
                    .hint("`blanks = \"drop\"` drops such rows"));
            }
            if let Some(column) = blank_in(table, row).filter(|_| self.blanks == Blanks::Error) {
                return Err(Error::data(format!("{}: the cell is blank", table.location(row, column)))
                    .hint("set `[dataset] blanks` to \"mean\", \"zero\" or \"drop\""));
            }
        }
        Ok(())
    }

    fn targets(&self, table: &RawTable, column: usize, train: &Part) -> Result<Targets> {
        let rows = 0..table.rows.len();
        if self.task == Task::Classification {
            let names = match self.categories.get(&self.target) {
                Some(_) => match table.column_type(column, &self.categories)? {
                    ColumnType::Categories(names) => names,
                    ColumnType::Numbers => CategoryIndex::default(),
                },
                None => classes(table, column),
            };
            let class = |r: usize| names.index_of(&table.rows[r][column]).unwrap_or(0) as i64;
            return Ok(Targets::Classes { labels: rows.map(class).collect(), count: names.len() });
        }
        let number = |r: usize| {
            table.number(r, column).map(|x| x as f32).ok_or_else(|| {
                let (place, cell) = (table.location(r, column), &table.rows[r][column]);
                Error::data(format!("{place}: the target `{cell}` is not a number"))
                    .hint("for text labels, set `[dataset] task = \"classification\"`")
            })
        };
        let mut values = rows.map(number).collect::<Result<Vec<f32>>>()?;
        let scale = if self.standardise_target { standardise(&mut values, 1, 0, train) } else { 1.0 };
        Ok(Targets::Numbers { values, scale })
    }

    /// The number of features, and the row-major feature values, filled and standardised.
    fn features(&self, table: &RawTable, columns: &[(usize, ColumnType)], train: &Part) -> (usize, Vec<f32>) {
        let width: usize = columns.iter().map(|(_, kind)| kind.width()).sum();
        let mut values = vec![0.0; width * table.rows.len()];
        for (row, mut out) in values.chunks_exact_mut(width.max(1)).enumerate() {
            for (column, kind) in columns {
                let (own, rest) = out.split_at_mut(kind.width());
                table.encode(row, *column, kind, own);
                out = rest;
            }
        }
        let mut at = 0;
        for (_, kind) in columns {
            for place in at..at + kind.width() {
                self.fill(&mut values, width, place, train);
                if self.standardise && *kind == ColumnType::Numbers {
                    standardise(&mut values, width, place, train);
                }
            }
            at += kind.width();
        }
        (width, values)
    }

    /// Replaces blank cells by the mean of the training rows, or zero.
    fn fill(&self, values: &mut [f32], width: usize, place: usize, train: &Part) {
        let known = (0..train.len()).map(|i| values[train.get(i) * width + place]).filter(|x| !x.is_nan());
        let (sum, count) = known.fold((0.0, 0usize), |(sum, n), x| (sum + f64::from(x), n + 1));
        let filler = if self.blanks == Blanks::Mean && count > 0 { (sum / count as f64) as f32 } else { 0.0 };
        values.iter_mut().skip(place).step_by(width).filter(|x| x.is_nan()).for_each(|x| *x = filler);
    }
}

/// Digest of the columns in use, as written in the file.
fn content<'a>(table: &RawTable, columns: impl Iterator<Item = &'a usize> + Clone) -> Content {
    let names = columns.clone().map(|&c| table.header[c].as_str());
    digest_of_parts(names.chain(table.rows.iter().flat_map(|row| columns.clone().map(move |&c| &row[c]))))
}

/// The labels of these rows: two spellings of a number are two.
pub(super) fn labels(
    table: &RawTable,
    column: usize,
    rows: impl IntoIterator<Item = usize>,
) -> BTreeSet<&str> {
    rows.into_iter().map(|row| &table.rows[row][column]).collect()
}

/// The labels in the column, sorted as numbers if all of them are numeric, otherwise as text.
fn classes(table: &RawTable, column: usize) -> CategoryIndex {
    let names: BTreeSet<&str> = labels(table, column, 0..table.rows.len());
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if names.iter().all(|n| n.parse::<f64>().is_ok()) {
        names.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse::<f64>().unwrap_or(0.0)));
    }
    names.into_iter().collect()
}

/// Mean 0 and standard deviation 1 over the training rows. A constant column becomes 0. Returns what 1 stands for.
fn standardise(values: &mut [f32], width: usize, place: usize, train: &Part) -> f64 {
    let n = train.len().max(1) as f64;
    let get = |i: usize| f64::from(values[train.get(i) * width + place]);
    let mean = (0..train.len()).map(get).sum::<f64>() / n;
    let variance = (0..train.len()).map(|i| (get(i) - mean).powi(2)).sum::<f64>() / n;
    let deviation = if variance > 0.0 { variance.sqrt() } else { 1.0 };
    let scale = 1.0 / deviation;
    values.iter_mut().skip(place).step_by(width).for_each(|x| *x = ((f64::from(*x) - mean) * scale) as f32);
    deviation
}

#[cfg(test)]
#[path = "csv_tests.rs"]
mod tests;
