//! The tables of a folder by their names, and how a model may learn from them, for `ddp-run init csv`.

use super::columns::listed;
use super::csv_columns::Column;
use super::csv_guessed::{read_table, with_hint};
use super::csv_joined::{concatenated, one_column_among, text_among_numbers};
use super::csv_proposal::{Beside, CsvProposal, Reasons, propose, target};
use super::csv_table::RawTable;
use super::image_files::{is_hidden, sorted};
use super::image_splits::take;
use super::parquet_names::split_of_name;
use crate::store::absolute;
use base::display;
use base::error::{Error, Result};
use std::path::{Path, PathBuf};

/// The tables of the splits.
#[derive(Debug)]
pub struct CsvTables {
    /// Path of the training table.
    pub train: PathBuf,
    /// Validation table; `None` if there is none that can be used.
    pub val: Option<OtherTable>,
    /// Test table; `None` if there is none that can be used.
    pub test: Option<OtherTable>,
    /// Other tables, by name: those of no split, and those that can't be used, with the reason.
    pub unused: Vec<String>,
}

/// A table beside that of training.
#[derive(Debug)]
pub struct OtherTable {
    /// In the folder of the training table.
    pub name: String,
    /// Number of rows, without the header.
    pub rows: usize,
    /// It has the target.
    pub labelled: bool,
}

/// Reads the table at `path`, or the tables in that folder, and examines their columns. Beside `train.csv`, `val.csv` and `test.csv` are
/// tables of the same data.
///
/// # Errors
/// Exit 78: a file can't be read, is not a table with a header line and some rows, or has no column that can be a target or a feature; a
/// folder has no training table.
pub fn propose_csv(path: &Path) -> Result<(CsvTables, CsvProposal)> {
    let Files { train, val, test, mut unused } = Files::from_path(path)?;
    let (table, marks) = read_table(&train)?;
    let columns: Vec<Column> = (0..table.header.len()).map(|c| Column::new(&table, c)).collect();
    let mut read = |path: Option<PathBuf>| {
        let path = path?;
        let found = read_other(&table, &columns, &path);
        found.map_err(|why| unused.push(format!("{} ({why})", file_name(&path)))).ok()
    };
    let (mut val, test) = (read(val), read(test));
    let lacks = |other: &RawTable| -> Vec<String> {
        table.header.iter().filter(|name| !other.header.contains(name)).cloned().collect()
    };
    let lacking = test.as_ref().map(&lacks).unwrap_or_default();
    let of_test =
        Beside { lacking, lacks: test.as_ref().map_or_else(String::new, name_of), ..Beside::default() };
    if let Some((at, ..)) = target(&table.header, &columns, &of_test)
        && let Some(other) = val.take_if(|val| !val.header.contains(&table.header[at]))
    {
        let target = display::name(&table.header[at]);
        unused.push(format!("{} (it lacks `{target}`, the target)", name_of(&other)));
    }
    // A test table may lack the target, but then no other table does.
    let of_val = val.as_ref().map(&lacks).unwrap_or_default();
    let mut of_test = test.as_ref().map(&lacks).unwrap_or_default();
    of_test.retain(|name| !of_val.contains(name));
    let labelled = test.is_some() && of_test.is_empty();
    let trained_with = [val.as_ref(), test.as_ref().filter(|_| labelled)].into_iter().flatten();
    let mut useless: Reasons = trained_with.flat_map(|other| mixed(&table, other)).collect();
    let header: Vec<String> = table.header.iter().filter(|name| !of_val.contains(name)).cloned().collect();
    let beside = Beside {
        useless: match (&val, labelled) {
            (None, false) => useless,
            // A column that numbers the rows of each table numbers not those of all.
            _ => {
                useless.extend(columns.into_iter().filter_map(|c| Some((c.name, c.useless?))));
                useless
            }
        },
        lacking: of_test,
        lacks: test.as_ref().map_or_else(String::new, name_of),
    };
    let other =
        |table: &RawTable, labelled| OtherTable { name: name_of(table), rows: table.rows.len(), labelled };
    let tables = CsvTables {
        train,
        val: val.as_ref().map(|table| other(table, true)),
        test: test.as_ref().map(|table| other(table, labelled)),
        unused,
    };
    let left_out: Vec<(String, String)> = of_val
        .into_iter()
        .map(|name| (name, format!("{} lacks it", val.as_ref().map_or_else(String::new, name_of))))
        .collect();
    let all: Vec<RawTable> = [Some(table), val, test.filter(|_| labelled)].into_iter().flatten().collect();
    let mut found = match &all[..] {
        [only] => propose(only, marks, &beside)?,
        _ => propose(&concatenated(all, header)?, marks, &beside)?,
    };
    found.left_out.extend(left_out);
    Ok((tables, found))
}

/// The table at `path`, of another split, if it can be used beside that of training, or else why not.
fn read_other(train: &RawTable, columns: &[Column], path: &Path) -> Result<RawTable, String> {
    let table = RawTable::read(path, train.delimiter, train.blank_marks().to_vec());
    let table = table.map_err(with_hint).map_err(|error| {
        let place = format!("{}: ", absolute(path).display());
        let why = error.message.strip_prefix(&place).unwrap_or(&error.message).to_owned();
        // What to do comes first: long texts are cut in the spec.
        error.hint.map_or(why.clone(), |hint| format!("{hint}; {why}"))
    })?;
    let has = |column: &&Column| table.header.contains(&column.name);
    match (table.header.as_slice(), table.rows.is_empty()) {
        ([], _) => Err("it is empty".to_owned()),
        ([only], _) if !train.header.contains(only) => Err(one_column_among(only, train.delimiter)),
        _ if !columns.iter().any(|column| has(&column)) => {
            Err(format!("it has no column of {}", name_of(train)))
        }
        _ if !columns.iter().any(|column| has(&column) && column.useless.is_none()) => {
            Err(format!("of {}, it has only columns that can't be features", name_of(train)))
        }
        (_, true) => Err("it has no rows".to_owned()),
        _ => Ok(table),
    }
}

/// The columns that have numbers only in the training table, but not in another: a run refuses them.
fn mixed(train: &RawTable, other: &RawTable) -> Reasons {
    let reason = |column: usize| {
        let (row, at) = text_among_numbers(train, other, column)?;
        let (cell, other, train_name) = (display::name(&other.rows[row][at]), name_of(other), name_of(train));
        let why = format!("numbers in {train_name}, but not `{cell}` in {other}");
        Some((train.header[column].clone(), why))
    };
    (0..train.header.len()).filter_map(reason).collect()
}

fn name_of(table: &RawTable) -> String {
    file_name(Path::new(&table.path))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The files of the tables.
pub(super) struct Files {
    pub train: PathBuf,
    pub val: Option<PathBuf>,
    pub test: Option<PathBuf>,
    pub unused: Vec<String>,
}

impl Files {
    /// The table at `path` with those beside it, if it is the training table of its folder; or those of the folder `path`.
    pub fn from_path(path: &Path) -> Result<Self> {
        let alone = || Self { train: path.to_owned(), val: None, test: None, unused: Vec::new() };
        if path.is_dir() {
            return Self::find(path);
        }
        let beside = Self::find(base::files::folder(path)).ok();
        let same = |files: &Self| absolute(&files.train) == absolute(path);
        Ok(beside.filter(same).unwrap_or_else(alone))
    }

    fn find(folder: &Path) -> Result<Self> {
        let is_table = |path: &PathBuf| {
            path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv"))
                && !is_hidden(path)
                && path.is_file()
        };
        let mut files = sorted(folder).map_err(Error::of_data)?;
        files.retain(is_table);
        let names: Vec<String> = files.iter().map(|path| stem(path)).collect();
        if let [only] = &files[..] {
            return Ok(Self { train: only.clone(), val: None, test: None, unused: Vec::new() });
        }
        let mut take = |split: usize| {
            let stands_for = |_: &Path, name: &str| split_of_name(name) == Some(split);
            take((folder, "tables"), &mut files, split, stem, &stands_for)
        };
        let (train, val, test) = (take(0)?, take(1)?, take(2)?);
        let train = train.ok_or_else(|| {
            let place = display::piece(&folder.display().to_string());
            match names.is_empty() {
                true => Error::data(format!("{place} has no CSV files")),
                false => Error::data(format!("{place} has no table with `train` in its name"))
                    .hint(format!("name one of its tables: {}", listed(names.iter().map(String::as_str)))),
            }
        })?;
        Ok(Self { train, val, test, unused: files.iter().map(|path| file_name(path)).collect() })
    }
}

/// The name of a file without its extension, in lower case.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase()
}

#[cfg(test)]
#[path = "csv_tables_tests.rs"]
mod tests;
