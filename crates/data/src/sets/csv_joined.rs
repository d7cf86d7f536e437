//! The tables of several splits as one: columns are found by name.

use super::columns::listed;
use super::csv_table::{RawTable, plain_number, reads_as_number};
use super::table::{Sections, TableKeys};
use super::table_known::known_columns;
use crate::TableEncoding;
use base::display;
use base::error::{Error, Result};
use csv::{Position, StringRecord};
use spec::did_you_mean;

/// The tables besides that of training.
#[derive(Default)]
pub(super) struct Others {
    pub val: Option<RawTable>,
    pub test: Option<RawTable>,
}

impl Others {
    pub fn is_empty(&self) -> bool {
        self.val.is_none() && self.test.is_none()
    }
}

/// Why a table has no targets, as a test table may; `None` if a row has one, or there are no rows in the columns of training.
pub(super) fn without_targets(table: &RawTable, target: &str) -> Option<String> {
    let shown = display::name(target);
    let Some(at) = table.header.iter().position(|name| name == target) else {
        let near = did_you_mean(target, table.header.iter().map(String::as_str));
        return Some(format!("it has no column `{shown}`{near}"));
    };
    let blank = !table.rows.is_empty() && (0..table.rows.len()).all(|row| table.is_blank(row, at));
    blank.then(|| format!("no row has a value in the target `{shown}`"))
}

/// Whether a table without targets has the feature columns of training, and rows.
///
/// # Errors
/// It has not (`ErrorKind::Spec`).
pub(super) fn check_unlabelled(train: &RawTable, other: &RawTable, features: &[usize]) -> Result<()> {
    same_columns(train, other, features, false)?;
    has_rows(other)
}

/// The rows of all tables in the columns of training.
///
/// # Errors
/// A table lacks a column that is used, or has another where all are; it has texts where training
/// has numbers only (`ErrorKind::Spec`).
pub(super) fn joined(
    train: RawTable,
    others: Others,
    keys: &TableKeys,
    target: &str,
    known: Option<&TableEncoding>,
) -> Result<(RawTable, Sections)> {
    let Others { val, mut test } = others;
    let target_column = train.column(target, "target")?;
    let features = match known {
        Some(known) => known_columns(&train.path, &train.header, known)?,
        None => keys.columns(&train, target_column)?,
    };
    if let Some(table) = &test
        && without_targets(table, target).is_some()
    {
        check_unlabelled(&train, table, &features)?;
        test = None;
    }
    let len = |table: &Option<RawTable>| table.as_ref().map(|table| table.rows.len());
    let sections = Sections { train: train.rows.len(), val: len(&val), test: len(&test) };
    let used = [&features[..], &[target_column]].concat();
    let all = known.is_none() && keys.features.is_none();
    let tables: Vec<RawTable> = [val, test].into_iter().flatten().collect();
    for table in &tables {
        same_columns(&train, table, &used, all)?;
        has_rows(table)?;
        if known.is_none() {
            let guessed = features.iter().filter(|at| !keys.categories.contains_key(&train.header[**at]));
            guessed.copied().try_for_each(|column| same_type(&train, table, column))?;
        }
    }

    let header = train.header.clone();
    let table = concatenated([train].into_iter().chain(tables).collect(), header)?;
    Ok((table, sections))
}

/// The rows of all tables in the columns `header`, each of which the first table has. Another that lacks one has empty cells there.
pub(super) fn concatenated(tables: Vec<RawTable>, header: Vec<String>) -> Result<RawTable> {
    let (blanks, delimiter) = (tables[0].blank_marks().to_vec(), tables[0].delimiter);
    let paths: Vec<&str> = tables.iter().map(|table| table.path.as_str()).collect();
    let mut table = RawTable::of_rows(paths.join(", "), header, blanks, Box::new(places(&tables)))?;
    table.delimiter = delimiter;
    for own in tables {
        let at = |name: &String| own.header.iter().position(|other| other == name);
        let columns: Vec<Option<usize>> = table.header.iter().map(at).collect();
        let cells = |row: &StringRecord| columns.iter().map(|at| at.map_or("", |at| &row[at])).collect();
        own.rows.iter().map(cells).for_each(|row: StringRecord| table.push(row));
    }
    Ok(table)
}

fn same_columns(train: &RawTable, other: &RawTable, used: &[usize], all: bool) -> Result<()> {
    let lacks = |of: &RawTable, name: &str| !of.header.iter().any(|known| known == name);
    let names = used.iter().map(|at| train.header[*at].as_str());
    let missing: Vec<&str> = names.filter(|name| lacks(other, name)).collect();
    let names = other.header.iter().map(String::as_str);
    let more: Vec<&str> = names.filter(|name| all && lacks(train, name)).collect();
    let parts = [("it lacks ", missing), ("only it has ", more)]
        .map(|(what, names)| (!names.is_empty()).then(|| format!("{what}{}", in_words(names))));
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return Ok(());
    }
    let what = format!("{} has other columns than {}: {}", other.path, train.path, parts.join("; "));
    Err(Error::data(what).hint(match other.header.as_slice() {
        [only] if train.header.len() > 1 => one_column_among(only, train.delimiter),
        _ => "columns are found by their names in the first line; `[dataset] features` lists those to use"
            .to_owned(),
    }))
}

/// Names of columns in a message. The index of pandas has none.
fn in_words(names: Vec<&str>) -> String {
    let (unnamed, named): (Vec<&str>, Vec<&str>) = names.into_iter().partition(|name| name.is_empty());
    let unnamed = unnamed.first().map(|_| "a column without a name".to_owned());
    let named = (!named.is_empty()).then(|| listed(named.into_iter()));
    named.into_iter().chain(unnamed).collect::<Vec<_>>().join(" and ")
}

/// Hint for a table that was read as a single column, with the separator of the training table.
pub(super) fn one_column_among(name: &str, delimiter: u8) -> String {
    let (name, mark) = (display::name(name), char::from(delimiter).escape_default());
    format!(
        "the file has a single column, `{name}`; all tables must have the separator of the training table, `{mark}`"
    )
}

fn has_rows(table: &RawTable) -> Result<()> {
    match table.rows.is_empty() {
        true => Err(Error::data(format!("{} has no rows", table.path))),
        false => Ok(()),
    }
}

/// A cell of `other` that is not a number, in a column of `train` that has numbers only: its row and column in `other`.
pub(super) fn text_among_numbers(
    train: &RawTable,
    other: &RawTable,
    column: usize,
) -> Option<(usize, usize)> {
    let at = other.header.iter().position(|name| *name == train.header[column])?;
    let text = |table: &RawTable, at: usize| {
        let is_text = |row: &usize| !table.is_blank(*row, at) && table.number(*row, at).is_none();
        (0..table.rows.len()).find(is_text)
    };
    let is_filled = (0..train.rows.len()).any(|row| !train.is_blank(row, column));
    if !is_filled || text(train, column).is_some() {
        return None;
    }
    text(other, at).map(|row| (row, at))
}

/// The training table decides whether a column has numbers or texts.
fn same_type(train: &RawTable, other: &RawTable, column: usize) -> Result<()> {
    let Some((row, at)) = text_among_numbers(train, other, column) else { return Ok(()) };
    let (place, cell) = (other.location(row, at), &other.rows[row][at]);
    let shown = display::name(cell);
    let what =
        format!("{place}: `{shown}` is not a number, but all cells of this column in {} are", train.path);
    Err(Error::data(what).hint(match reads_as_number(cell) {
        true => plain_number(cell),
        false => {
            "if it stands for a missing value, add it to `[dataset] blank_marks`; if the column has categories, \
             `[dataset] categories` lists them"
        }
    }))
}

/// The place of each row of the joined table: its file and line.
fn places(tables: &[RawTable]) -> impl Fn(u64) -> String + use<> {
    let line = |row: &StringRecord| row.position().map_or(0, Position::line);
    let of_table = |table: &RawTable| (table.path.clone(), table.rows.iter().map(line).collect());
    let files: Vec<(String, Vec<u64>)> = tables.iter().map(of_table).collect();
    move |row| {
        let mut row = row as usize;
        for (path, lines) in &files {
            match lines.get(row) {
                Some(line) => return format!("{path}, line {line}"),
                None => row -= lines.len(),
            }
        }
        String::new()
    }
}

#[cfg(test)]
#[path = "csv_joined_tests.rs"]
mod tests;
