//! The rows of a table as samples: features and a target. Text columns are one-hot encoded; numeric columns are standardised
//! with the mean and standard deviation of the training rows only, so validation data does not leak into training.

use super::csv_remarks::remarks;
use super::csv_set::{CsvSet, Rows, Targets};
use super::csv_table::{BLANK_MARKS, ColumnType, RawTable};
use super::table_blanks::Dropped;
use super::table_cells::encode;
use super::table_known::{known_columns, known_remarks};
use super::table_measured::{Measured, target_encoding};
use super::table_values::content;
use crate::images::class_facts;
use crate::split::{ClassOf, SplitOptions, Subset};
use crate::{DataFacts, Dataset, FieldFacts, FieldKind, Splits, TableEncoding};
use base::error::{Error, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use smart_default::SmartDefault;
use spec::{Fields, choice};
use std::collections::{BTreeMap, BTreeSet};
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

/// How the columns of a table become inputs and a target. A column of numbers is one input; columns of text are encoded one-hot.
/// A run prints the type that it detected for each column, and warns of columns that are probably something else: numbers among marks
/// for missing values, or an index.
#[derive(Clone, Debug, Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Tables"))]
pub(super) struct TableKeys {
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
    /// Scale each column of numbers to mean 0 and standard deviation 1, both measured on the training split and computed with 64 bits.
    /// Models compute with 32 bits: without it, large numbers that differ little, such as times, may become equal.
    #[default = true]
    pub standardise: bool,
    #[serde(skip)]
    pub standardise_target: bool,
    /// What the numbers of the target stand for, if its file says it.
    #[serde(skip)]
    pub class_names: Option<Vec<String>>,
}

// Read only for `regression`.
#[derive(Deserialize, JsonSchema, SmartDefault)]
#[serde(default)]
#[schemars(extend("x-section" = "Tables"))]
struct NumberTarget {
    /// Scale the target in the same way; only for `regression`. The loss is that of the scaled target; `mae` and `mse` are in
    /// the table's units.
    #[default = true]
    standardise_target: bool,
}

/// Reports wrong names in `features`.
pub(super) fn check_features(fields: &mut Fields<'_>, features: Option<&[String]>, target: &str) {
    let Some(features) = features else { return };
    let mut seen = BTreeSet::new();
    if features.iter().any(|column| column == target) {
        fields.problem("features", format!("names the target `{target}`"));
    } else if let Some(twice) = features.iter().find(|column| !seen.insert(*column)) {
        fields.problem("features", format!("`{twice}` is listed twice"));
    }
}

/// Numbers of rows: those of the training samples come first in a table, then those of its other splits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sections {
    pub train: usize,
    pub val: Option<usize>,
    pub test: Option<usize>,
}

impl Sections {
    /// The sections of the rows that are kept.
    pub fn kept(&self, keep: &[bool]) -> Self {
        let count = |from: usize, n: usize| keep[from..from + n].iter().filter(|kept| **kept).count();
        let behind = self.train + self.val.unwrap_or(0);
        Self {
            train: count(0, self.train),
            val: self.val.map(|n| count(self.train, n)),
            test: self.test.map(|n| count(behind, n)),
        }
    }
}

impl TableKeys {
    /// Reads the keys of a table in which the model predicts `target`; `None` if the data set is none.
    pub fn read(fields: &mut Fields<'_>, applies: bool, target: &str) -> Option<Self> {
        let read: Option<Self> = fields.config_if(applies);
        if let Some(keys) = &read {
            keys.check(fields, target);
        }
        let numbers = read.as_ref().is_some_and(|keys| keys.task == Task::Regression);
        let standardise_target =
            fields.config_if(numbers).is_some_and(|NumberTarget { standardise_target }| standardise_target);
        read.map(|keys| Self { standardise_target, ..keys })
    }

    fn check(&self, fields: &mut Fields<'_>, target: &str) {
        check_features(fields, self.features.as_deref(), target);
        for (column, names) in &self.categories {
            let mut seen = BTreeSet::new();
            if let Some(twice) = names.iter().find(|name| !seen.insert(*name)) {
                fields.problem_at(&["categories", column], format!("`{twice}` is listed twice"));
            }
        }
    }

    pub fn facts(&self, target: &str) -> DataFacts {
        let target = match self.task {
            Task::Regression => Some(FieldFacts { shape: vec![1], kind: FieldKind::Float }),
            Task::Classification => self.categories.get(target).map(|names| class_facts(names.len())),
        };
        DataFacts { target, ..DataFacts::default() }
    }

    /// The samples of a table: those of training are split if the spec wants that, else the validation samples are those of their
    /// section, or those of the test section. They are encoded as `known`, or as the training samples have it.
    pub fn splits(
        &self,
        mut table: RawTable,
        target: &str,
        mut sections: Sections,
        split: &SplitOptions,
        known: Option<&TableEncoding>,
    ) -> Result<Splits> {
        let target = table.column(target, "target")?;
        let columns = match known {
            Some(known) => known_columns(&table.path, &table.header, known)?,
            None => self.columns(&table, target)?,
        };
        let rows = sections;
        let dropped = self.handle_blanks(&mut table, &columns, target, &mut sections)?;
        let emptied = |before: Option<usize>, after: Option<usize>| before > Some(0) && after == Some(0);
        let splits = [
            ("train", sections.train == 0),
            ("val", emptied(rows.val, sections.val)),
            ("test", emptied(rows.test, sections.test)),
        ];
        if let Some((split, _)) = splits.into_iter().find(|(_, empty)| *empty) {
            let of_split = match rows.val.or(rows.test) {
                None => String::new(),
                Some(_) => format!(" for the split `{split}`"),
            };
            let error = Error::data(format!("{} has no usable rows{of_split}", table.path));
            return Err(match rows.train {
                0 => error,
                _ => error.hint("every row has a blank cell, and `blanks = \"drop\"` drops it"),
            });
        }
        let class = self.class_numbers(&table, target);
        let class = class.as_ref().map(|numbers| |row: usize| -> Result<usize> { Ok(numbers[row]) });
        let class = class.as_ref().map(|class| class as ClassOf<'_>);
        let (train, own_val) = split.split(sections.train, class)?;
        let (encoding, targets, remarks) = match known {
            Some(known) => {
                let targets = self.known_targets(&table, target, known)?;
                let remarks = known_remarks(&table, target, &targets, dropped.as_ref());
                (known.clone(), targets, remarks)
            }
            None => {
                self.check_classes(&table, target, sections.train)?;
                self.inferred(&table, &columns, target, &train, dropped.as_ref())?
            }
        };
        let values = encode(&table, &encoding, &columns)?;
        let content = content(&table, columns.iter().chain([&target]));
        let (width, places) = (encoding.width(), table.into_places());
        let rows = Arc::new(Rows { width, values, targets, remarks, content, places, encoding });
        let set = |part| Arc::new(CsvSet { rows: rows.clone(), part }) as Arc<dyn Dataset>;
        let behind = sections.train + sections.val.unwrap_or(0);
        let test = sections.test.map(|n| Subset::range(behind..behind + n));
        let val = match sections.val {
            _ if split.val_split > 0.0 => Some(own_val),
            Some(n) => Some(split.validation(Subset::range(sections.train..sections.train + n), class)?),
            None => test.clone().map(|test| split.validation(test, class)).transpose()?,
        };
        Ok(Splits { train: set(train), val: val.map(set), test: test.map(set) })
    }

    /// The encoding that the columns suggest and the training rows have, the targets in it, and what is told of it.
    fn inferred(
        &self,
        table: &RawTable,
        columns: &[usize],
        target: usize,
        train: &Subset,
        dropped: Option<&Dropped>,
    ) -> Result<(TableEncoding, Targets, Vec<String>)> {
        let kinds = columns
            .iter()
            .map(|&c| Ok((c, table.column_type(c, &self.categories)?)))
            .collect::<Result<Vec<(usize, ColumnType)>>>()?;
        let Measured { columns, targets, warnings } = self.measured(table, &kinds, target, train)?;
        let encoding = TableEncoding {
            delimiter: char::from(table.delimiter),
            columns,
            blanks: self.blanks,
            blank_marks: table.blank_marks().to_vec(),
            target: target_encoding(&table.header[target], &targets),
        };
        let remarks = remarks(table, &kinds, (target, &targets), &self.categories, (dropped, warnings));
        Ok((encoding, targets, remarks))
    }

    /// The feature columns: those in `features`, otherwise all but the target.
    pub(super) fn columns(&self, table: &RawTable, target: usize) -> Result<Vec<usize>> {
        for name in self.categories.keys() {
            table.column(name, "categories")?;
        }
        match &self.features {
            Some(names) => names.iter().map(|name| table.column(name, "features")).collect(),
            None => Ok((0..table.header.len()).filter(|&c| c != target).collect()),
        }
    }

    /// A number of each row's class by its text, in any order; `None` if the target is a number.
    fn class_numbers(&self, table: &RawTable, target: usize) -> Option<Vec<usize>> {
        if self.task != Task::Classification {
            return None;
        }
        let (mut numbers, mut classes) = (BTreeMap::new(), Vec::with_capacity(table.rows.len()));
        for row in &table.rows {
            let next = numbers.len();
            classes.push(*numbers.entry(&row[target]).or_insert(next));
        }
        Some(classes)
    }
}
