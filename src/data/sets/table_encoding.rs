//! How the cells of a table become inputs, as checkpoints carry it; and the rows of other tables, encoded in the same way
//! for predictions.

use super::csv_set::Targets;
use super::csv_table::{CategoryIndex, ColumnType, RawTable};
use super::table::Blanks;
use super::table_values::Scale;
use crate::data::{ColumnEncoding, ColumnKind, TableEncoding, TargetEncoding};
use crate::error::{Error, Result};
use crate::show;
use crate::spec::did_you_mean;
use std::path::Path;

/// A column that was filled and scaled so.
pub(super) fn column_kind(kind: &ColumnType, fill: &[f32], Scale { mean, std }: Scale) -> ColumnKind {
    match kind {
        ColumnType::Numbers => {
            ColumnKind::Number { mean, std, fill: f64::from(fill.first().copied().unwrap_or(0.0)) }
        }
        ColumnType::Categories(names) => ColumnKind::Category {
            categories: names.names(),
            fill: fill.iter().map(|x| f64::from(*x)).collect(),
        },
    }
}

pub(super) fn target_encoding(name: &str, targets: &Targets) -> TargetEncoding {
    let name = name.to_owned();
    match targets {
        Targets::Numbers { scale: Scale { mean, std }, .. } => {
            TargetEncoding::Number { name, mean: *mean, std: *std }
        }
        Targets::Classes { names, .. } => TargetEncoding::Class { name, classes: names.clone() },
    }
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct InputRow {
    /// In the file, from 1.
    pub line: u64,
    /// The inputs; or the column of a cell that can't be used, and why.
    pub values: Result<Vec<f32>, (String, String)>,
}

/// Reads the rows of a text file with a header that has the columns of `encoding`, in any order and among others.
///
/// # Errors
/// The file can't be read, or a column is missing.
pub fn read_rows(encoding: &TableEncoding, path: &Path) -> Result<Vec<InputRow>> {
    let delimiter = u8::try_from(encoding.delimiter).unwrap_or(b',');
    let table = RawTable::read(path, delimiter, encoding.blank_marks.clone())?;
    let columns = encoding.columns.iter().map(|column| Cells::new(&table, column));
    let columns = columns.collect::<Result<Vec<Cells<'_>>>>()?;
    let width = encoding.columns.iter().map(|column| column.kind.width()).sum();
    let row = |row: usize| {
        let mut values = Vec::with_capacity(width);
        let read = columns.iter().try_for_each(|cells| {
            cells
                .push(&table, row, encoding.blanks, &mut values)
                .map_err(|why| (cells.encoding.name.clone(), why))
        });
        InputRow { line: table.line(row), values: read.map(|()| values) }
    };
    Ok((0..table.rows.len()).map(row).collect())
}

/// The cells of one column.
struct Cells<'a> {
    at: usize,
    encoding: &'a ColumnEncoding,
    /// Of a column of categories.
    index: CategoryIndex,
}

impl<'a> Cells<'a> {
    fn new(table: &RawTable, encoding: &'a ColumnEncoding) -> Result<Self> {
        let ColumnEncoding { name, kind } = encoding;
        let Some(at) = table.header.iter().position(|column| column == name) else {
            let near = did_you_mean(name, table.header.iter().map(String::as_str));
            let what = format!("{} has no column `{}`{near}", table.path, show::name(name));
            let hint = format!(
                "the model was trained with it; columns are found by the names in the first line, between `{}`",
                char::from(table.delimiter)
            );
            return Err(Error::data(what).hint(hint));
        };
        let index = match kind {
            ColumnKind::Number { .. } => CategoryIndex::default(),
            ColumnKind::Category { categories, .. } => categories.iter().cloned().collect(),
        };
        Ok(Self { at, encoding, index })
    }

    /// Appends the inputs of a row's cell, computed as for training.
    fn push(
        &self,
        table: &RawTable,
        row: usize,
        blanks: Blanks,
        values: &mut Vec<f32>,
    ) -> Result<(), String> {
        let (cell, blank) = (&table.rows[row][self.at], table.is_blank(row, self.at));
        if blank && blanks == Blanks::Error {
            return Err("the cell is empty, and the model was trained without empty cells".to_owned());
        }
        if blank && blanks == Blanks::Drop {
            return Err("the cell is empty; such rows were dropped in training".to_owned());
        }
        match &self.encoding.kind {
            ColumnKind::Number { mean, std, fill } => {
                let number = || table.number(row, self.at).map(|x| x as f32);
                let x = if blank { Some(*fill as f32) } else { number() };
                let x = x.ok_or_else(|| format!("`{}` is not a number", show::name(cell)))?;
                values.push(Scale { mean: *mean, std: *std }.apply(x));
            }
            ColumnKind::Category { fill, .. } if blank => values.extend(fill.iter().map(|x| *x as f32)),
            ColumnKind::Category { categories, .. } => {
                let known = self.index.index_of(cell);
                let place = known.ok_or_else(|| {
                    let near = did_you_mean(cell, categories.iter().map(String::as_str));
                    format!("`{}` is none of the categories of training{near}", show::name(cell))
                })?;
                values.extend((0..categories.len()).map(|i| if i == place { 1.0 } else { 0.0 }));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::sets::csv;
    use crate::data::testing::{configure, sample};
    use crate::data::{Encoding, Splits};

    const TABLE: &str = "id;size;kind;y\n1;0.5;a;10\n2;;b;20\n3;7.25;a;40\n4;2;;50\n";

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    fn opened(more: &str) -> (Splits, TableEncoding) {
        let (_folder, path) = written(TABLE);
        let keys =
            format!("path = '{}'\ndelimiter = ';'\ntarget = 'y'\nval_split = 0.0\n{more}", path.display());
        let splits = configure(&csv, &keys).unwrap().open().unwrap();
        let Some(Encoding::Table(encoding)) = splits.train.encoding() else { panic!("it is a table") };
        (splits, encoding)
    }

    #[test]
    fn rows_have_the_values_of_training_whatever_the_order_of_columns() {
        for blanks in ["mean", "zero"] {
            let (splits, encoding) = opened(&format!("blanks = '{blanks}'"));
            let (_folder, path) = written("kind;other;size;id\na;;0.5;1\nb;;NA;2\na;;7.25;3\n;;2;4\n");
            let rows = read_rows(&encoding, &path).unwrap();
            assert_eq!(rows.iter().map(|row| row.line).collect::<Vec<u64>>(), [2, 3, 4, 5]);
            for (i, row) in rows.into_iter().enumerate() {
                let found: Vec<f64> = row.values.unwrap().into_iter().map(f64::from).collect();
                assert_eq!(found, sample(&*splits.train, i, 0).0, "{blanks}, row {i}");
            }
        }
    }

    #[test]
    fn cells_that_cannot_be_used_are_named_and_lose_only_their_row() {
        let (_, encoding) = opened("blanks = 'drop'");
        let (_folder, path) = written("id;size;kind\n1;1;a\n2;;a\n3;many;a\n4;1;c\n5;2;a\n");
        let rows = read_rows(&encoding, &path).unwrap();
        let wrong: Vec<(u64, String, String)> = rows
            .iter()
            .filter_map(|row| row.values.clone().err().map(|(column, why)| (row.line, column, why)))
            .collect();
        assert_eq!(wrong.len(), 3);
        assert_eq!((wrong[0].0, wrong[0].1.as_str()), (3, "size"));
        assert!(wrong[0].2.contains("dropped in training"), "{}", wrong[0].2);
        assert_eq!(wrong[1].2, "`many` is not a number");
        assert!(wrong[2].2.starts_with("`c` is none of the categories of training"), "{}", wrong[2].2);
        let (_folder, path) = written("id;sizes;kind\n1;1;a\n");
        let error = read_rows(&encoding, &path).unwrap_err().to_string();
        assert!(error.contains("has no column `size`; did you mean `sizes`?"), "{error}");
    }
}
