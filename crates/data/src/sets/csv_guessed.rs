//! Reads a table of which neither the separator nor the marks for empty cells are known.

use super::csv_proposal::marks;
use super::csv_table::{BLANK_MARKS, RawTable};
use crate::store::absolute;
use base::display;
use base::error::{Error, IoContext, Result};
use std::path::Path;

/// Lines after the first that show what separates columns.
const LINES: usize = 20;
const DELIMITERS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// Reads the table at `path`, with the separator and the marks for empty cells that it seems to have. Returns the marks, too.
///
/// # Errors
/// Exit 78: the file can't be read, or is not a table with a header line.
pub(super) fn read_table(path: &Path) -> Result<(RawTable, Vec<String>)> {
    let delimiter = delimiter(path).map_err(Error::of_data)?;
    let read = |marks: &[String]| {
        let blank = BLANK_MARKS.into_iter().map(str::to_owned).chain(marks.iter().cloned());
        RawTable::read(path, delimiter, blank.collect()).map_err(with_hint)
    };
    let table = read(&[])?;
    // Years are names, too.
    let is_year = |name: &str| name.parse::<u16>().is_ok_and(|year| (1000..3000).contains(&year));
    let is_number = |name: &&String| name.parse::<f64>().is_ok_and(f64::is_finite) && !is_year(name);
    let numbers: Vec<&String> = table.header.iter().filter(is_number).collect();
    if numbers.len() * 2 > table.header.len() {
        let first = display::name(numbers[0]);
        return Err(Error::data(format!(
            "{}: the first line has numbers, such as `{first}`, instead of names",
            table.path
        ))
        .hint("add a line with the names of the columns at the top"));
    }
    let marks = marks(&table);
    let table = if marks.is_empty() { table } else { read(&marks)? };
    Ok((table, marks))
}

/// What to do about a file that is not a table.
pub(super) fn with_hint(error: Error) -> Error {
    let hint = match error.caused_by().map(csv::Error::kind) {
        _ if error.hint.is_some() => return error,
        Some(csv::ErrorKind::Utf8 { .. }) => {
            "a table is UTF-8 text; `iconv -f LATIN1 -t UTF-8` converts one of Latin-1"
        }
        Some(csv::ErrorKind::UnequalLengths { .. }) => {
            "each line has as many cells as the first; a cell with a separator in it must be in double quotes"
        }
        _ => return error,
    };
    error.hint(hint)
}

/// The separator that makes most columns of the first line, before others one with which the next lines have as many.
fn delimiter(path: &Path) -> Result<u8> {
    let path = absolute(path);
    let columns = |delimiter: u8| {
        let file = base::files::open(&path).doing("read", &path)?;
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
        _ if columns(DELIMITERS[0])?.1 == 0 => Err(Error::data(format!("{} is empty", path.display()))
            .hint("a table has the names of its columns in the first line, and a row in each of the others")),
        ((_, 1), _) => Err(Error::data(format!("{} has a single column", path.display()))
            .hint("a table has columns that are separated by a comma, a semicolon, a tab or `|`")),
        (_, delimiter) => Ok(delimiter),
    }
}
