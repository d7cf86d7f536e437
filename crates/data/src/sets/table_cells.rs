//! The cells of a column as inputs, by an encoding: of the table that is trained on, of others, and of rows for predictions.

use super::csv_table::{CategoryIndex, RawTable, number};
use super::table::Blanks;
use super::table_values::Scale;
use crate::{ColumnEncoding, ColumnKind, TableEncoding};
use base::display;
use base::error::{Error, Result};
use spec::did_you_mean;

/// The cells of one column.
pub(super) struct Cells<'a> {
    pub at: usize,
    pub encoding: &'a ColumnEncoding,
    /// The categories of the column.
    index: CategoryIndex,
}

/// The place of the column `name` in the header of `path`. Spaces around a name count only where another has none: columns of Parquet
/// and SQLite may have some.
///
/// # Errors
/// There is none, or there are several. `hint` says where the name comes from.
pub(super) fn find(path: &str, header: &[String], name: &str, hint: &str) -> Result<usize> {
    let places = |same: &dyn Fn(&str) -> bool| -> Vec<usize> {
        (0..header.len()).filter(|at| same(&header[*at])).collect()
    };
    let mut found = places(&|column| column == name);
    if found.is_empty() {
        found = places(&|column| column.trim() == name.trim());
    }
    let shown = display::name(name);
    match found[..] {
        [at] => Ok(at),
        [] => {
            let near = did_you_mean(name, header.iter().map(|name| name.trim()));
            Err(Error::data(format!("{path} has no column `{shown}`{near}")).hint(hint))
        }
        _ => Err(Error::data(format!("{path} has {} columns `{shown}`", found.len()))),
    }
}

impl<'a> Cells<'a> {
    pub fn new(at: usize, encoding: &'a ColumnEncoding) -> Self {
        let index = match &encoding.kind {
            ColumnKind::Number { .. } => CategoryIndex::default(),
            ColumnKind::Category { categories, .. } => categories.iter().cloned().collect(),
        };
        Self { at, encoding, index }
    }

    /// Appends the inputs of a cell.
    ///
    /// # Errors
    /// Why it has none.
    pub fn push(&self, table: &TableEncoding, cell: &str, values: &mut Vec<f32>) -> Result<(), String> {
        let trimmed = cell.trim();
        // Spaces are part of a category only in Parquet and SQLite.
        let category = self.index.index_of(cell).or_else(|| self.index.index_of(trimmed));
        let marked = |cell: &str| table.blank_marks.iter().any(|mark| mark == cell);
        let blank = marked(cell) || self.index.index_of(cell).is_none() && marked(trimmed);
        if blank && table.blanks == Blanks::Error {
            return Err("the cell is empty, and the model was trained without empty cells".to_owned());
        }
        if blank && table.blanks == Blanks::Drop {
            return Err("the cell is empty; such rows were dropped in training".to_owned());
        }
        match &self.encoding.kind {
            ColumnKind::Number { mean, std, fill } => {
                let x = if blank { Some(*fill) } else { number(trimmed) };
                let x = x.ok_or_else(|| format!("`{}` is not a number", display::name(cell)))?;
                let scaled = Scale { mean: *mean, std: *std }.apply(x);
                if (x as f32).is_infinite() || scaled.is_infinite() {
                    return Err(format!("`{}` is too large", display::name(cell)));
                }
                values.push(scaled);
            }
            ColumnKind::Category { fill, .. } if blank => values.extend(fill.iter().map(|x| *x as f32)),
            ColumnKind::Category { categories, .. } => {
                let place = category.ok_or_else(|| {
                    let near = did_you_mean(cell, categories.iter().map(String::as_str));
                    format!("`{}` is none of the categories of training{near}", display::name(cell))
                })?;
                values.extend((0..categories.len()).map(|i| if i == place { 1.0 } else { 0.0 }));
            }
        }
        Ok(())
    }
}

/// The inputs of all rows, row-major. `columns` are the places of those of `encoding`.
///
/// # Errors
/// A cell has none.
pub(super) fn encode(table: &RawTable, encoding: &TableEncoding, columns: &[usize]) -> Result<Vec<f32>> {
    let cells = columns.iter().zip(&encoding.columns).map(|(at, column)| Cells::new(*at, column));
    let cells: Vec<Cells<'_>> = cells.collect();
    let mut values = Vec::with_capacity(encoding.width() * table.rows.len());
    for row in 0..table.rows.len() {
        for column in &cells {
            column.push(encoding, &table.rows[row][column.at], &mut values).map_err(|why| {
                let error = Error::data(format!("{}: {why}", table.location(row, column.at)));
                match table.is_blank(row, column.at) {
                    true => error.hint("`[dataset] blanks = \"drop\"` drops such rows"),
                    false => error,
                }
            })?;
        }
    }
    Ok(values)
}
