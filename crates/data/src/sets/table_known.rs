//! A table in the encoding of a checkpoint, which is evaluated on it: nothing is measured.

use super::csv_remarks::rows_in_words;
use super::csv_set::Targets;
use super::csv_table::{CategoryIndex, RawTable};
use super::table::{TableKeys, Task};
use super::table_blanks::Dropped;
use super::table_cells::find;
use super::table_measured::target_numbers;
use super::table_values::Scale;
use crate::{TableEncoding, TargetEncoding};
use base::display;
use base::error::{Error, Result};
use spec::did_you_mean;

/// The places of the columns of `known` in this header.
pub(super) fn known_columns(path: &str, header: &[String], known: &TableEncoding) -> Result<Vec<usize>> {
    let hint = "the checkpoint was trained with it";
    known.columns.iter().map(|column| find(path, header, &column.name, hint)).collect()
}

impl TableKeys {
    /// The targets as `known` has them.
    pub(super) fn known_targets(
        &self,
        table: &RawTable,
        column: usize,
        known: &TableEncoding,
    ) -> Result<Targets> {
        let other = |what: &str, task: &str| {
            let what = format!("the checkpoint predicts {what}, and `[dataset] task` is another");
            Err(Error::data(what).hint(format!("set `task = \"{task}\"`")))
        };
        match &known.target {
            TargetEncoding::Number { mean, std, .. } => {
                if self.task == Task::Classification {
                    return other("numbers", "regression");
                }
                let scale = Scale { mean: *mean, std: *std };
                let numbers = target_numbers(table, column)?;
                Ok(Targets::Numbers { values: numbers.iter().map(|x| scale.apply(*x)).collect(), scale })
            }
            TargetEncoding::Class { classes, .. } => {
                if self.task == Task::Regression {
                    return other("classes", "classification");
                }
                self.known_labels(table, column, classes)
            }
        }
    }

    fn known_labels(&self, table: &RawTable, column: usize, classes: &[String]) -> Result<Targets> {
        let index: CategoryIndex = classes.iter().cloned().collect();
        // The file's names of its numbers, if the checkpoint has these names.
        let known = |names: &&Vec<String>| names.iter().all(|name| index.index_of(name).is_some());
        let names = self.class_names.as_ref().filter(known);
        let label = |row: usize| {
            let cell = &table.rows[row][column];
            let named = names.and_then(|names| names.get(cell.parse::<usize>().ok()?));
            let name = named.map_or(cell, String::as_str);
            let found = index.index_of(name).or_else(|| index.index_of(name.trim()));
            found.map(|at| at as i64).ok_or_else(|| {
                let near = did_you_mean(name, classes.iter().map(String::as_str));
                let (place, name) = (table.location(row, column), display::name(name));
                let what = format!(
                    "{place}: `{name}` is none of the {} classes of the checkpoint{near}",
                    classes.len()
                );
                Error::data(what).hint("a class that was not trained can't be predicted: remove its rows")
            })
        };
        let labels = (0..table.rows.len()).map(label).collect::<Result<Vec<i64>>>()?;
        Ok(Targets::Classes { labels, names: classes.to_vec() })
    }
}

/// What is told of the table.
pub(super) fn known_remarks(
    table: &RawTable,
    target: usize,
    targets: &Targets,
    dropped: Option<&Dropped>,
) -> Vec<String> {
    let (rows, name) = (rows_in_words(table, dropped), display::name(&table.header[target]));
    vec![format!(
        "{}: {rows}; columns, categories and scales are the checkpoint's; target: `{name}`, {}",
        table.path,
        targets.in_words()
    )]
}
