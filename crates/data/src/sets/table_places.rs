//! Where the rows of a table are: lines of a file, or rows as Parquet and SQLite count them.

use crate::in_line;

/// The place of a row, by its number in the table from 0: `FILE, row 7`.
pub(super) type RowPlace = Box<dyn Fn(u64) -> String + Send + Sync>;

/// Where the rows of a table are.
pub(super) struct Places {
    path: String,
    row_place: Option<RowPlace>,
    numbers: Vec<u64>,
}

impl Places {
    pub fn new(path: String, row_place: Option<RowPlace>, numbers: Vec<u64>) -> Self {
        Self { path, row_place, numbers }
    }

    /// `FILE, line 7`, or as its [`RowPlace`] says.
    pub fn of_row(&self, row: usize) -> Option<String> {
        Some(place(&self.path, self.row_place.as_ref(), *self.numbers.get(row)?))
    }
}

/// The place of the row with this number.
pub(super) fn place(path: &str, row_place: Option<&RowPlace>, number: u64) -> String {
    row_place.map_or_else(|| in_line(path, number), |place| place(number))
}
