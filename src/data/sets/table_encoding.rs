//! How the cells of a table become inputs, as checkpoints carry it; and the rows of other tables, encoded in the same way
//! for predictions.

use super::csv_set::Targets;
use super::csv_table::{CategoryIndex, ColumnType, line_of, number};
use super::table::Blanks;
use super::table_values::Scale;
use crate::data::store::absolute;
use crate::data::{ColumnEncoding, ColumnKind, TableEncoding, TargetEncoding};
use crate::error::{Error, IoContext, Result};
use crate::show;
use crate::spec::did_you_mean;
use csv::{ByteRecord, StringRecord};
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
    pub values: Result<Vec<f32>, UnusableRow>,
}

/// Why a row can't be used.
#[derive(Clone, Debug, PartialEq)]
pub struct UnusableRow {
    /// The column of the cell, if it is due to one.
    pub column: Option<String>,
    pub why: String,
}

/// Reads the rows of a text file with a header that has the columns of `encoding`, in any order and among others. A row that is no
/// row of the table loses no other.
///
/// # Errors
/// The file can't be read, or a column is missing.
pub fn read_rows(encoding: &TableEncoding, path: &Path) -> Result<Vec<InputRow>> {
    let path = &absolute(path);
    let bytes = std::fs::read(path).doing("read", path)?;
    let delimiter = u8::try_from(encoding.delimiter).unwrap_or(b',');
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(bytes.as_slice());
    let damaged = |e: csv::Error| Error::data(format!("{}: {e}", path.display())).cause(e);
    let header = reader.headers().map_err(damaged)?.clone();
    if header.is_empty() {
        let what = format!("{} is empty: its first line has the names of the columns", path.display());
        return Err(Error::data(what));
    }
    let columns = encoding.columns.iter().map(|column| Cells::new(path, (&header, delimiter), column));
    let columns = columns.collect::<Result<Vec<Cells<'_>>>>()?;
    let mut rows = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(damaged)?;
        let line = record.position().map_or(0, |at| line_of(at, &bytes));
        rows.push(InputRow { line, values: values(encoding, &columns, header.len(), record) });
    }
    Ok(rows)
}

/// The inputs of a row that has as many cells as there are names in the header.
fn values(
    encoding: &TableEncoding,
    columns: &[Cells<'_>],
    width: usize,
    record: ByteRecord,
) -> Result<Vec<f32>, UnusableRow> {
    let row = |why: String| UnusableRow { column: None, why };
    let cells = StringRecord::from_byte_record(record)
        .map_err(|e| row(format!("cell {} of the row is not UTF-8", e.utf8_error().field() + 1)))?;
    if cells.len() != width {
        let counts = format!("{}, and the first line has {width}", show::count(cells.len(), "cell"));
        return Err(row(format!("the row has {counts}")));
    }
    let mut values = Vec::new();
    for column in columns {
        let cell = |why| UnusableRow { column: Some(column.encoding.name.clone()), why };
        column.push(encoding, &cells[column.at], &mut values).map_err(cell)?;
    }
    Ok(values)
}

/// The cells of one column.
struct Cells<'a> {
    at: usize,
    encoding: &'a ColumnEncoding,
    /// The categories of the column.
    index: CategoryIndex,
}

impl<'a> Cells<'a> {
    fn new(
        path: &Path,
        (header, delimiter): (&StringRecord, u8),
        encoding: &'a ColumnEncoding,
    ) -> Result<Self> {
        let ColumnEncoding { name, kind } = encoding;
        let places = |same: &dyn Fn(&str) -> bool| -> Vec<usize> {
            (0..header.len()).filter(|at| same(&header[*at])).collect()
        };
        // Spaces around a name count only where another has none; columns of Parquet and SQLite may have some.
        let mut found = places(&|column| column == name);
        if found.is_empty() {
            found = places(&|column| column.trim() == name.trim());
        }
        let (path, shown) = (path.display(), show::name(name));
        let at = match found[..] {
            [at] => at,
            [] => {
                let near = did_you_mean(name, header.iter().map(str::trim));
                let hint = format!(
                    "the model was trained with it; columns are found by the names in the first line, between `{}`",
                    char::from(delimiter)
                );
                return Err(Error::data(format!("{path} has no column `{shown}`{near}")).hint(hint));
            }
            _ => return Err(Error::data(format!("{path} has {} columns `{shown}`", found.len()))),
        };
        let index = match kind {
            ColumnKind::Number { .. } => CategoryIndex::default(),
            ColumnKind::Category { categories, .. } => categories.iter().cloned().collect(),
        };
        Ok(Self { at, encoding, index })
    }

    /// Appends the inputs of a cell, computed as for training.
    fn push(&self, table: &TableEncoding, cell: &str, values: &mut Vec<f32>) -> Result<(), String> {
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
                let x = x.ok_or_else(|| format!("`{}` is not a number", show::name(cell)))? as f32;
                if x.is_infinite() {
                    return Err(format!("`{}` is too large", show::name(cell)));
                }
                values.push(Scale { mean: *mean, std: *std }.apply(x));
            }
            ColumnKind::Category { fill, .. } if blank => values.extend(fill.iter().map(|x| *x as f32)),
            ColumnKind::Category { categories, .. } => {
                let place = category.ok_or_else(|| {
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
            .filter_map(|row| {
                row.values.clone().err().map(|e| (row.line, e.column.unwrap_or_default(), e.why))
            })
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

    #[test]
    fn a_row_that_is_none_loses_no_other() {
        let (_, encoding) = opened("blanks = 'zero'");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        // A mark of the byte order, line ends of Windows, an empty line, a cell of two lines; names that are there twice, unused.
        let text = b"\xef\xbb\xbfid;size; kind;note;note\r\n1;0.5;a;;\r\n\r\n2;1\r\n3;1; b ;\"x\r\ny\";\r\n\xff;1;a;;\r\n5;1e39;a;;\r\n6;1;b;;";
        std::fs::write(&path, text).unwrap();
        let rows = read_rows(&encoding, &path).unwrap();
        let lines: Vec<(u64, bool)> = rows.iter().map(|row| (row.line, row.values.is_ok())).collect();
        assert_eq!(lines, [(2, true), (4, false), (5, true), (7, false), (8, false), (9, true)]);
        let why = |i: usize| rows[i].values.clone().unwrap_err();
        assert_eq!(
            (why(1).column, why(1).why.as_str()),
            (None, "the row has 2 cells, and the first line has 5")
        );
        assert_eq!((why(3).column, why(3).why.as_str()), (None, "cell 1 of the row is not UTF-8"));
        assert_eq!((why(4).column.as_deref(), why(4).why.as_str()), (Some("size"), "`1e39` is too large"));
        let (_folder, path) = written("id;size;kind;size\n1;1;a;2\n");
        let error = read_rows(&encoding, &path).unwrap_err().to_string();
        assert!(error.contains("has 2 columns `size`"), "{error}");
        let (_folder, path) = written("");
        assert!(read_rows(&encoding, &path).unwrap_err().to_string().contains("is empty"));
    }

    /// Parquet and SQLite may have them.
    #[test]
    fn names_and_categories_with_spaces_around_them_are_found() {
        let (_, mut encoding) =
            opened("blanks = 'error'\nfeatures = ['id']\ncategories = { id = ['1', '2', '3', '4'] }");
        let categories = vec![" 1".to_owned(), "1".to_owned(), " 2 ".to_owned()];
        encoding.columns[0] = ColumnEncoding {
            name: " id ".into(),
            kind: ColumnKind::Category { categories, fill: Vec::new() },
        };
        let (_folder, path) = written("id\n 1\n1\n1 \n 2 \n");
        let rows = read_rows(&encoding, &path).unwrap();
        let places: Vec<Option<usize>> =
            rows.iter().map(|row| row.values.as_ref().unwrap().iter().position(|x| *x == 1.0)).collect();
        assert_eq!(places, [0, 1, 1, 2].map(Some));
    }
}
