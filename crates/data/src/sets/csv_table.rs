//! Reads a CSV file, and infers which columns are numeric and which are text.

use super::table_places::{Places, RowPlace, place};
use crate::store::absolute;
use base::display;
use base::error::{Error, IoContext, Result};
use csv::{Position, StringRecord};
use spec::did_you_mean;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

/// A text column with more values than this is rejected: it holds names or notes, not categories.
const MAX_CATEGORIES: usize = 1000;
/// Texts that count as blank by default.
pub(super) const BLANK_MARKS: [&str; 6] = ["", "NA", "N/A", "NaN", "nan", "null"];

/// Texts that people and programs write where a value is missing, beside [`BLANK_MARKS`].
pub(super) const OTHER_MARKS: [&str; 17] = [
    "?", "-", "--", ".", "None", "none", "NULL", "Null", "na", "n/a", "#N/A", "<NA>", "nil", "NONE", "NAN",
    "missing", "unknown",
];

/// The header and rows of a file.
pub(super) struct RawTable {
    pub path: String,
    /// Separator of columns.
    pub delimiter: u8,
    /// `None`: by its line.
    row_place: Option<RowPlace>,
    pub header: Vec<String>,
    /// Column indices by name.
    indices: HashMap<String, usize>,
    pub rows: Vec<StringRecord>,
    /// Texts that count as blank.
    blanks: Vec<String>,
}

/// The type of a column.
#[derive(Debug, PartialEq)]
pub(super) enum ColumnType {
    Numbers,
    /// One-hot.
    Categories(CategoryIndex),
}

/// The categories of a column, each with its index.
#[derive(Debug, Default, PartialEq)]
pub(super) struct CategoryIndex {
    indices: HashMap<String, usize>,
}

impl FromIterator<String> for CategoryIndex {
    /// Indices follow the order of first occurrence.
    fn from_iter<T: IntoIterator<Item = String>>(names: T) -> Self {
        let mut indices = HashMap::new();
        for name in names {
            let next = indices.len();
            indices.entry(name).or_insert(next);
        }
        Self { indices }
    }
}

impl CategoryIndex {
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.indices.get(name).copied()
    }

    /// By index.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<(usize, &String)> =
            self.indices.iter().map(|(name, index)| (*index, name)).collect();
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name.clone()).collect()
    }
}

/// Hint for a file that was read as a single column.
fn one_column(name: &str) -> String {
    let mark = [';', '\t', '|', ' '].into_iter().find(|mark| name.contains(*mark));
    let name = display::name(name);
    match mark.map(char::escape_default) {
        Some(mark) => {
            format!("the file has a single column, `{name}`; set `[dataset] delimiter = \"{mark}\"`")
        }
        None => format!(
            "the file has a single column, `{name}`; set `[dataset] delimiter` to the separator between columns"
        ),
    }
}

/// The minus sign of typesetters, which word processors and some exports write.
const MINUS: char = '\u{2212}';

/// Whether a text is a number with thousands separators, currency signs, another minus sign or the like.
pub(super) fn reads_as_number(text: &str) -> bool {
    let plain = text.chars().filter(|c| !",'_ %$€£".contains(*c));
    let plain: String = plain.map(|c| if c == MINUS { '-' } else { c }).collect();
    plain != text && plain.parse::<f64>().is_ok()
}

/// How to write a cell that [`reads_as_number`].
pub(super) fn plain_number(cell: &str) -> &'static str {
    match cell.contains(MINUS) {
        true => "write minus signs as `-` (U+002D), not `\u{2212}` (U+2212), as in -1234.5",
        false => "write numbers without separators and units, as in 1234.5",
    }
}

/// A finite number.
pub(super) fn number(cell: &str) -> Option<f64> {
    cell.parse::<f64>().ok().filter(|x| x.is_finite())
}

/// The line in `bytes`, from 1, of the record that was read at `at`: the reader takes it before the line ends that are ahead of the
/// record, those of empty lines and the `\n` of `\r\n`.
pub(super) fn line_of(at: &Position, bytes: &[u8]) -> u64 {
    let ahead = usize::try_from(at.byte()).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
    let ends = ahead.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
    at.line() + ends.filter(|byte| **byte == b'\n').count() as u64
}

impl RawTable {
    pub fn read(path: &Path, delimiter: u8, blanks: Vec<String>) -> Result<Self> {
        // Errors show the absolute path.
        let path = &absolute(path);
        let bytes = base::files::read(path).doing("read", path)?;
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::All).from_reader(bytes.as_slice());
        let damaged = |e: csv::Error| {
            let mut text = format!("{}: {e}", path.display());
            if let Some(at) = e.position() {
                for line in ["(line: ", "(line "] {
                    let [there, own] =
                        [at.line(), line_of(at, &bytes)].map(|number| format!("{line}{number},"));
                    text = text.replacen(&there, &own, 1);
                }
            }
            Error::data(text).cause(e)
        };
        let header: Vec<String> = reader.headers().map_err(damaged)?.iter().map(str::to_owned).collect();
        let shown = path.display().to_string();
        let mut table = Self::new(shown, header, blanks)?;
        let header = &table.header;
        let mut rows = reader.records().collect::<Result<Vec<_>, _>>().map_err(|e| match &header[..] {
            // For example decimal commas, with another separator between columns.
            [only] => damaged(e).hint(one_column(only)),
            _ => damaged(e),
        })?;
        for row in &mut rows {
            let at_its_line = row.position().map(|at| {
                let mut own = at.clone();
                own.set_line(line_of(at, &bytes));
                own
            });
            row.set_position(at_its_line);
        }
        (table.rows, table.delimiter) = (rows, delimiter);
        Ok(table)
    }

    /// A table without rows. Messages name it `path`.
    fn new(path: String, header: Vec<String>, blanks: Vec<String>) -> Result<Self> {
        let mut indices = HashMap::with_capacity(header.len());
        for (i, name) in header.iter().enumerate() {
            if indices.insert(name.clone(), i).is_some() {
                let message = format!("{path}: column {} has the name `{name}` of an earlier column", i + 1);
                return Err(Error::data(message));
            }
        }
        Ok(Self { path, delimiter: b',', row_place: None, header, indices, rows: Vec::new(), blanks })
    }

    /// A table that does not come from a text file: `row_place` names its rows, which `push` adds.
    pub fn of_rows(
        path: String,
        header: Vec<String>,
        blanks: Vec<String>,
        row_place: RowPlace,
    ) -> Result<Self> {
        Ok(Self { row_place: Some(row_place), ..Self::new(path, header, blanks)? })
    }

    /// Adds a row, a cell for each column of the header.
    pub fn push(&mut self, mut row: StringRecord) {
        let mut position = Position::new();
        position.set_record(self.rows.len() as u64);
        row.set_position(Some(position));
        self.rows.push(row);
    }

    /// The index of the column `name`, which `key` of the spec names.
    pub fn column(&self, name: &str, key: &str) -> Result<usize> {
        self.indices.get(name).copied().ok_or_else(|| {
            let near = did_you_mean(name, self.header.iter().map(String::as_str));
            let error = Error::data(format!(
                "{} has no column `{name}`, which `[dataset] {key}` names{near}",
                self.path
            ));
            match self.header.as_slice() {
                [only] if self.row_place.is_none() => error.hint(one_column(only)),
                _ => error,
            }
        })
    }

    /// Texts that count as blank.
    pub fn blank_marks(&self) -> &[String] {
        &self.blanks
    }

    pub fn is_blank(&self, row: usize, column: usize) -> bool {
        let cell = &self.rows[row][column];
        self.blanks.iter().any(|b| b == cell)
    }

    /// The location of a cell, for messages.
    pub fn location(&self, row: usize, column: usize) -> String {
        let place = place(&self.path, self.row_place.as_ref(), self.number_of(row));
        format!("{place}, column `{}`", self.header[column])
    }

    /// The line of a row, or its number where rows have no lines.
    fn number_of(&self, row: usize) -> u64 {
        let number = if self.row_place.is_some() { Position::record } else { Position::line };
        self.rows[row].position().map_or(0, number)
    }

    /// The places of the rows, without their cells.
    pub fn into_places(self) -> Places {
        let numbers = (0..self.rows.len()).map(|row| self.number_of(row)).collect();
        Places::new(self.path, self.row_place, numbers)
    }

    pub fn number(&self, row: usize, column: usize) -> Option<f64> {
        number(&self.rows[row][column])
    }

    /// The type of a column: the categories in the spec if given, numbers if all cells are numeric, otherwise the texts that
    /// occur, sorted.
    pub fn column_type(
        &self,
        column: usize,
        categories: &BTreeMap<String, Vec<String>>,
    ) -> Result<ColumnType> {
        let filled = || (0..self.rows.len()).filter(|&r| !self.is_blank(r, column));
        if let Some(names) = categories.get(&self.header[column]) {
            let names: CategoryIndex = names.iter().cloned().collect();
            if let Some(row) = filled().find(|&r| names.index_of(&self.rows[r][column]).is_none()) {
                let (place, cell) = (self.location(row, column), &self.rows[row][column]);
                return Err(Error::data(format!("{place}: `{cell}` is not one of its `categories`")));
            }
            return Ok(ColumnType::Categories(names));
        }
        let Some(first_text) = filled().find(|&r| self.number(r, column).is_none()) else {
            let infinite = |row: &usize| self.number(*row, column).is_some_and(|x| !(x as f32).is_finite());
            return match filled().find(infinite) {
                Some(row) => Err(self.too_large(row, column)),
                None => Ok(ColumnType::Numbers),
            };
        };
        let texts = filled().filter(|&r| self.number(r, column).is_none()).count();
        let place = self.location(first_text, column);
        let cell = &self.rows[first_text][column];
        if texts * 2 < filled().count() {
            return Err(Error::data(format!(
                "{place}: `{cell}` is not a number, but most cells of the column are"
            ))
            .hint(match reads_as_number(cell) {
                true => plain_number(cell),
                false => "if it stands for a missing value, add it to `blank_marks`",
            }));
        }
        let names: BTreeSet<&str> = filled().map(|r| &self.rows[r][column]).collect();
        if names.len() > MAX_CATEGORIES {
            let message = format!(
                "{place}: the column has too many categories, {} with `{cell}`; the limit is {MAX_CATEGORIES}",
                names.len()
            );
            return Err(Error::data(message).hint("to leave the column out, list the others in `features`"));
        }
        Ok(ColumnType::Categories(names.into_iter().map(str::to_owned).collect()))
    }

    /// The error of a number beyond the range of f32.
    pub fn too_large(&self, row: usize, column: usize) -> Error {
        let (place, cell) = (self.location(row, column), &self.rows[row][column]);
        Error::data(format!("{place}: `{cell}` is too large"))
            .hint("if it stands for a missing value, add it to `blank_marks`")
    }
}
