//! Proposes how a model may learn from a table: the target, whether it is a number or a class, and the features, each with the reason.

use super::csv_columns::{Column, Kind};
use super::csv_table::{BLANK_MARKS, RawTable};
use super::table_values::labels;
use crate::data::store::absolute;
use crate::error::{Error, IoContext, Result};
use crate::show;
use std::fs::File;
use std::path::Path;

/// Fewer rows are no table to learn from.
const MIN_ROWS: usize = 10;
/// Most values of a target of whole numbers that are taken for classes, each with this many rows on average.
const MAX_NUMBER_CLASSES: usize = 20;
const MIN_ROWS_PER_CLASS: usize = 5;
/// Lines behind the first that show what separates columns.
const LINES: usize = 20;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];
/// Names that targets have, and last words of such names.
const TARGETS: [&str; 10] =
    ["target", "label", "labels", "class", "y", "outcome", "response", "output", "diagnosis", "species"];
const LAST_WORDS: [&str; 7] = ["target", "label", "class", "outcome", "price", "value", "output"];

/// How a model may learn from a table.
#[derive(Debug)]
pub struct CsvProposal {
    /// What separates the columns.
    pub delimiter: char,
    /// Rows that are left after [`blanks`](Self::blanks).
    pub rows: usize,
    /// The column to predict.
    pub target: String,
    /// Why this one.
    pub target_reason: String,
    /// The classes of the target; `None` if it is a number.
    pub classes: Option<usize>,
    /// Why it is a class, or a number.
    pub task_reason: String,
    /// The other columns that a model can use, each with its type in words.
    pub features: Vec<(String, String)>,
    /// The other columns, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// The value of `blanks` that the empty cells need, with the reason.
    pub blanks: Option<(&'static str, String)>,
}

/// Reads the table at `path` and looks at its columns.
///
/// # Errors
/// Exit 78: the file can't be read, is no table with a header line and some rows, or has no column that can be a target or a feature.
pub fn propose_csv(path: &Path) -> Result<CsvProposal> {
    let delimiter = delimiter(path).map_err(Error::of_data)?;
    let table = RawTable::read(path, delimiter, BLANK_MARKS.map(str::to_owned).to_vec())?;
    // Years are names, too.
    let is_year = |name: &str| name.parse::<u16>().is_ok_and(|year| (1000..3000).contains(&year));
    let is_number = |name: &&String| name.parse::<f64>().is_ok_and(f64::is_finite) && !is_year(name);
    let numbers: Vec<&String> = table.header.iter().filter(is_number).collect();
    if numbers.len() * 2 > table.header.len() {
        let first = show::name(numbers[0]);
        return Err(Error::data(format!(
            "{}: the first line has numbers, such as `{first}`, instead of names",
            table.path
        ))
        .hint("add a line with the names of the columns at the top"));
    }
    propose(&table, char::from(delimiter))
}

/// The separator that makes most columns of the first line, before others one with which the next lines have as many.
fn delimiter(path: &Path) -> Result<u8> {
    let path = absolute(path);
    let columns = |delimiter: u8| {
        let file = File::open(&path).doing("read", &path)?;
        let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).flexible(true).from_reader(file);
        let header = reader.headers().map_err(|e| {
            Error::data(format!("{}: the first line can't be read: {e}", path.display()))
                .hint("a table is UTF-8 text with the names of its columns in the first line")
        })?;
        let count = header.len();
        let even =
            reader.records().take(LINES).all(|record| record.is_ok_and(|record| record.len() == count));
        Ok::<_, Error>((count > 1 && even, count))
    };
    let mut best = ((false, 1), b',');
    for delimiter in DELIMITERS {
        let rank = columns(delimiter)?;
        if rank > best.0 {
            best = (rank, delimiter);
        }
    }
    match best {
        ((_, 1), _) => Err(Error::data(format!("{} has a single column", path.display()))
            .hint("a table has columns that are separated by a comma, a semicolon, a tab or `|`")),
        (_, delimiter) => Ok(delimiter),
    }
}

/// Looks at the columns of a table.
pub(super) fn propose(table: &RawTable, delimiter: char) -> Result<CsvProposal> {
    let rows = table.rows.len();
    if rows < MIN_ROWS {
        return Err(Error::data(format!("{} has {rows} rows; a proposal needs {MIN_ROWS}", table.path)));
    }
    let columns: Vec<Column> = (0..table.header.len()).map(|c| Column::of(table, c)).collect();
    let (target, target_reason) = target(&columns).ok_or_else(|| {
        Error::data(format!("{}: no column can be a target\n{}", table.path, reasons(&columns)))
    })?;
    let others = || columns.iter().enumerate().filter(|(i, _)| *i != target);
    let used: Vec<usize> = others().filter(|(_, c)| c.useless.is_none()).map(|(i, _)| i).collect();
    if used.is_empty() {
        let target = show::name(&columns[target].name);
        let why = format!("{}: besides the target `{target}`, no column can be a feature", table.path);
        return Err(Error::data(format!("{why}\n{}", reasons(&columns))));
    }
    let (rows, blanks) = blanks(table, target, &used)?;
    let labels = labels(table, target, rows.iter().copied()).len();
    let (classes, task_reason) = task(&columns[target], labels, rows.len());
    if classes.is_some_and(|classes| classes < 2) {
        let target = show::name(&columns[target].name);
        return Err(Error::data(format!(
            "{}: in the rows without an empty cell, the target `{target}` has one class only",
            table.path
        ))
        .hint("fill the empty cells, or remove columns that have some"));
    }
    let left_out = |(_, c): (usize, &Column)| Some((c.name.clone(), c.useless.clone()?));
    Ok(CsvProposal {
        delimiter,
        rows: rows.len(),
        target: columns[target].name.clone(),
        target_reason,
        classes,
        task_reason,
        features: used.iter().map(|i| (columns[*i].name.clone(), columns[*i].in_words())).collect(),
        left_out: others().filter_map(left_out).collect(),
        blanks,
    })
}

/// A line for each column that can't be used.
fn reasons(columns: &[Column]) -> String {
    let reason = |c: &Column| Some(format!("  `{}`: {}", show::name(&c.name), c.useless.as_ref()?));
    columns.iter().filter_map(reason).take(20).collect::<Vec<_>>().join("\n")
}

/// The column to predict: one that is called so, else the last.
fn target(columns: &[Column]) -> Option<(usize, String)> {
    let able = || (0..columns.len()).filter(|i| columns[*i].useless.is_none());
    let lower = |i: &usize| columns[*i].name.to_lowercase();
    let by_name = TARGETS.iter().find_map(|name| able().find(|i| lower(i) == *name));
    let by_word = || {
        let last_word = |i: &usize| {
            let name = lower(i);
            name.rsplit(|c: char| !c.is_alphanumeric()).next().is_some_and(|word| LAST_WORDS.contains(&word))
        };
        able().rfind(last_word)
    };
    match by_name.or_else(by_word) {
        Some(found) => Some((found, "by its name".to_owned())),
        None if able().next_back()? + 1 == columns.len() => {
            Some((columns.len() - 1, "the last column".to_owned()))
        }
        None => Some((able().next_back()?, "the last column that can be one".to_owned())),
    }
}

/// The number of classes, if the target is one, and why.
fn task(target: &Column, labels: usize, rows: usize) -> (Option<usize>, String) {
    let values = target.values;
    // As training counts them: `1` and `1.0` are two labels.
    let told = if labels == values {
        String::new()
    } else {
        format!(" ({labels} labels in the rows that are used)")
    };
    match target.kind {
        Kind::Texts => (Some(labels), format!("the cells are texts, {labels} different ones")),
        Kind::WholeNumbers
            if values == 2 || values <= MAX_NUMBER_CLASSES && values * MIN_ROWS_PER_CLASS <= rows =>
        {
            (
                Some(labels),
                format!(
                    "whole numbers, {values} different ones{told}; \"regression\" if they measure something"
                ),
            )
        }
        Kind::WholeNumbers | Kind::Numbers => (None, format!("numbers, {values} different ones")),
    }
}

/// The rows that are used, and what is done about empty cells.
fn blanks(
    table: &RawTable,
    target: usize,
    used: &[usize],
) -> Result<(Vec<usize>, Option<(&'static str, String)>)> {
    let rows = table.rows.len();
    let lacks = |r: usize, columns: &[usize]| columns.iter().any(|c| table.is_blank(r, *c));
    let without_target = (0..rows).filter(|r| lacks(*r, &[target])).count();
    let whole: Vec<usize> = (0..rows).filter(|r| !lacks(*r, &[used, &[target]].concat())).collect();
    let without_any = rows - whole.len();
    if without_any == 0 {
        return Ok((whole, None));
    }
    if without_target == 0 {
        let why = format!("{without_any} of {rows} rows have an empty cell; \"drop\" leaves them out");
        return Ok(((0..rows).collect(), Some(("mean", why))));
    }
    let left = whole.len();
    if left < MIN_ROWS {
        let name = show::name(&table.header[target]);
        let why = format!(
            "{}: the target `{name}` is empty in {without_target} rows, and {left} rows have no empty cell",
            table.path
        );
        return Err(Error::data(why).hint("fill the target, or remove columns with empty cells"));
    }
    let why = format!(
        "{without_target} rows lack the target; with other empty cells, {without_any} of {rows} rows are left out"
    );
    Ok((whole, Some(("drop", why))))
}

#[cfg(test)]
#[path = "csv_proposal_tests.rs"]
mod tests;
