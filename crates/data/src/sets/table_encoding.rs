//! The rows of text files as inputs, by the encoding that a checkpoint carries: for predictions.

use super::csv_table::line_of;
use super::table_cells::{Cells, find};
use crate::TableEncoding;
use crate::store::absolute;
use base::display;
use base::error::{Error, IoContext, Result};
use csv::{ByteRecord, StringRecord};
use std::path::Path;

/// A row of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct InputRow {
    /// In the file, from 1.
    pub line: u64,
    /// The network's input, or why the row can't be used.
    pub values: Result<Vec<f32>, UnusableRow>,
}

/// Why a row can't be used.
#[derive(Clone, Debug, PartialEq)]
pub struct UnusableRow {
    /// The column of the cell, if it is due to one.
    pub column: Option<String>,
    /// The reason, as text.
    pub why: String,
}

/// Reads the rows of a text file with a header that has the columns of `encoding`, in any order and among others. A row that is no
/// row of the table loses no other.
///
/// # Errors
/// The file can't be read, or a column is missing.
pub fn read_rows(encoding: &TableEncoding, path: &Path) -> Result<Vec<InputRow>> {
    let path = &absolute(path);
    let bytes = base::files::read(path).doing("read", path)?;
    let delimiter = u8::try_from(encoding.delimiter).unwrap_or(b',');
    let mut reader =
        csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(bytes.as_slice());
    let damaged = |e: csv::Error| Error::data(format!("{}: {e}", path.display())).cause(e);
    let header = reader.headers().map_err(damaged)?.clone();
    if header.is_empty() {
        let what = format!("{} is empty: its first line has the names of the columns", path.display());
        return Err(Error::data(what));
    }
    let names: Vec<String> = header.iter().map(str::to_owned).collect();
    let (place, hint) = (path.display().to_string(), columns_hint(char::from(delimiter)));
    let columns = encoding
        .columns
        .iter()
        .map(|column| Ok(Cells::new(find(&place, &names, &column.name, &hint)?, column)))
        .collect::<Result<Vec<Cells<'_>>>>()?;
    let mut rows = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(damaged)?;
        let line = record.position().map_or(0, |at| line_of(at, &bytes));
        rows.push(InputRow { line, values: values(encoding, &columns, header.len(), record) });
    }
    Ok(rows)
}

fn columns_hint(delimiter: char) -> String {
    format!(
        "the model was trained with it; columns are found by the names in the first line, between `{delimiter}`"
    )
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
        let counts = format!("{}, and the first line has {width}", display::count(cells.len(), "cell"));
        return Err(row(format!("the row has {counts}")));
    }
    let mut values = Vec::new();
    for column in columns {
        let cell = |why| UnusableRow { column: Some(column.encoding.name.clone()), why };
        column.push(encoding, &cells[column.at], &mut values).map_err(cell)?;
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sets::csv;
    use crate::testing::{configure, sample};
    use crate::{ColumnEncoding, ColumnKind, Encoding, Splits};

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

    /// Unix milliseconds of one minute, and a target that follows from them: f32 has one value for all.
    #[test]
    fn large_numbers_keep_their_differences_as_features_targets_and_in_predictions() {
        let start = 1_700_000_000_000_i64;
        let rows: String = (0..60).map(|i| format!("{};{}\n", start + i * 1000, start + 600 + i)).collect();
        let (_folder, path) = written(&format!("depart;arrive\n{rows}"));
        let open = |more: &str| {
            let path = path.display();
            let keys =
                format!("path = '{path}'\ndelimiter = ';'\ntarget = 'arrive'\nval_split = 0.0\n{more}");
            configure(&csv, &keys).unwrap().open().unwrap()
        };
        let splits = open("");
        assert_eq!(splits.train.remarks().len(), 1, "{:?}", splits.train.remarks());
        let deviation = ((60.0 * 60.0 - 1.0) / 12.0_f64).sqrt();
        for i in 0..60 {
            let expected = f64::from(((i as f64 - 29.5) / deviation) as f32);
            let (input, target) = sample(&*splits.train, i, 0);
            let near = |found: f64| (found - expected).abs() < 1e-6;
            assert!(near(input[0]) && near(target[0]), "{input:?}, {target:?}, {expected}");
        }
        assert_eq!(splits.train.target_scale(), deviation);
        let Some(Encoding::Table(encoding)) = splits.train.encoding() else { panic!("it is a table") };
        let rows = read_rows(&encoding, &path).unwrap();
        for (i, row) in rows.into_iter().enumerate() {
            assert_eq!(f64::from(row.values.unwrap()[0]), sample(&*splits.train, i, 0).0[0]);
        }
        let said = open("standardise = false\nstandardise_target = false").train.remarks();
        let warned = |column: &str, key: &str| {
            let (of, hint) = (format!("column `{column}`: 60 different numbers"), format!("{key} = true`"));
            said.iter()
                .any(|line| line.starts_with("warning: ") && line.contains(&of) && line.contains(&hint))
        };
        assert!(warned("depart", "standardise") && warned("arrive", "standardise_target"), "{said:?}");
    }

    #[test]
    fn another_table_is_encoded_as_the_checkpoint_says() {
        let (splits, encoding) = opened("blanks = 'mean'");
        let known = Encoding::Table(encoding.clone());
        let open = |text: &str, more: &str| {
            let (_folder, path) = written(text);
            let keys = format!("path = '{}'\ntarget = 'y'\nval_split = 0.0\n{more}", path.display());
            configure(&csv, &keys).unwrap().open_encoded(&known)
        };
        // Other columns, in another order, and other means.
        let rows = "kind,other,y,size,id\na,x,40,7.25,3\na,x,40,7.25,3\n,x,50,2,4\n";
        let found = open(rows, "blanks = 'mean'").unwrap().train;
        assert_eq!(
            (found.encoding(), found.target_scale()),
            (Some(known.clone()), splits.train.target_scale())
        );
        for (row, trained) in [(0, 2), (1, 2), (2, 3)] {
            assert_eq!(sample(&*found, row, 0), sample(&*splits.train, trained, 0));
        }
        assert_eq!(open(rows, "blanks = 'drop'").unwrap().train.len(), 2, "which rows count is the spec's");
        for (text, why) in [
            ("kind,y,size,id\nc,1,1,1\n", "line 2, column `kind`: `c` is none of the categories of training"),
            ("kind,y,size,id\na,1,many,1\n", "line 2, column `size`: `many` is not a number"),
            ("kind,y,id\na,1,1\n", "has no column `size`"),
        ] {
            let error = open(text, "").err().unwrap().to_string();
            assert!(error.contains(why), "{error}");
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
