//! What a column of a table holds, and whether a model can use it.

use super::csv_remarks::MANY_CATEGORIES;
use super::csv_table::{OTHER_MARKS, RawTable, number, reads_as_number};
use base::display;
use std::collections::{BTreeSet, HashSet};

/// What the cells of a column are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CsvCellKind {
    WholeNumbers,
    Numbers,
    Texts,
}

/// A column, without its empty cells.
#[derive(Debug)]
pub(super) struct Column {
    pub name: String,
    pub kind: CsvCellKind,
    /// Different values.
    pub values: usize,
    /// Why a model can't use it.
    pub useless: Option<String>,
}

/// The text that keeps a column of numbers from being one, and how many cells have such texts: one that stands for a missing value, or
/// the only one among several numbers.
pub(super) fn foreign_text(table: &RawTable, column: usize) -> Option<(&str, usize)> {
    let cells = (0..table.rows.len()).filter(|r| !table.is_blank(*r, column)).map(|r| &table.rows[r][column]);
    let is_number = |cell: &&str| number(cell).is_some() || reads_as_number(cell);
    let (numbers, texts): (Vec<&str>, Vec<&str>) = cells.partition(is_number);
    let different: BTreeSet<&str> = texts.iter().copied().collect();
    let several = || numbers.iter().collect::<HashSet<_>>().len() > 2;
    let marks = different.iter().all(|text| OTHER_MARKS.contains(text));
    let found = !numbers.is_empty() && (marks || different.len() == 1 && several());
    different.first().filter(|_| found).map(|text| (*text, texts.len()))
}

/// Whether a column that has no name, as the index that `to_csv()` of pandas writes, or the name of one has another whole number in each
/// row.
pub(super) fn is_index(table: &RawTable, column: usize) -> bool {
    let name = table.header[column].trim().to_lowercase();
    let called = name.is_empty() || name.starts_with("unnamed:") || called_index(&name);
    let whole = |r: usize| table.number(r, column).filter(|x| x.fract() == 0.0).map(f64::to_bits);
    let mut seen = HashSet::new();
    called && table.rows.len() > 1 && (0..table.rows.len()).all(|r| whole(r).is_some_and(|x| seen.insert(x)))
}

/// Whether a name in lower case is one of a column that numbers rows.
fn called_index(name: &str) -> bool {
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    words.any(|word| ["id", "index", "rownum"].contains(&word))
}

impl Column {
    pub fn new(table: &RawTable, column: usize) -> Self {
        let filled: Vec<usize> = (0..table.rows.len()).filter(|r| !table.is_blank(*r, column)).collect();
        let texts: Vec<&str> = filled
            .iter()
            .filter(|r| table.number(**r, column).is_none())
            .map(|r| &table.rows[*r][column])
            .collect();
        let whole = |r: &usize| table.number(*r, column).is_some_and(|x| x.fract() == 0.0);
        let kind = match texts.is_empty() {
            false => CsvCellKind::Texts,
            true if filled.iter().all(whole) => CsvCellKind::WholeNumbers,
            true => CsvCellKind::Numbers,
        };
        let values = match kind {
            CsvCellKind::Texts => {
                filled.iter().map(|r| &table.rows[*r][column]).collect::<HashSet<_>>().len()
            }
            // 1 and 1.0 are one value.
            _ => filled
                .iter()
                .filter_map(|r| table.number(*r, column))
                .map(f64::to_bits)
                .collect::<HashSet<_>>()
                .len(),
        };
        let mut own = Self { name: table.header[column].clone(), kind, values, useless: None };
        own.useless = own.why_useless(table, column, &filled, &texts);
        own
    }

    fn why_useless(
        &self,
        table: &RawTable,
        column: usize,
        filled: &[usize],
        texts: &[&str],
    ) -> Option<String> {
        let rows = table.rows.len();
        let first = texts.first().map(|text| display::name(text)).unwrap_or_default();
        if filled.is_empty() {
            return Some("it is empty".to_owned());
        }
        if filled.len() * 2 < rows {
            return Some(format!("{} of {rows} cells are empty", rows - filled.len()));
        }
        if self.kind == CsvCellKind::Texts && texts.len() * 2 < filled.len() {
            return Some(format!(
                "most cells are numbers, but not `{first}`; if it stands for an empty cell, add it to `blank_marks`"
            ));
        }
        if let Some((mark, count)) = foreign_text(table, column) {
            let mark = display::name(mark);
            return Some(format!(
                "numbers, but `{mark}` in {count} of {rows} cells; if it stands for an empty cell, add it to `blank_marks`"
            ));
        }
        if self.kind == CsvCellKind::Texts && texts.iter().all(|text| reads_as_number(text)) {
            return Some(format!("numbers with separators or units, such as `{first}`"));
        }
        let too_large = |r: &usize| table.number(*r, column).is_some_and(|x| x.abs() > f64::from(f32::MAX));
        if let Some(row) = filled.iter().find(|r| too_large(r)) {
            let cell = display::name(&table.rows[*row][column]);
            return Some(format!("the number {cell} does not fit 32 bits"));
        }
        if self.values == 1 {
            return Some("all cells are equal".to_owned());
        }
        if self.kind == CsvCellKind::Texts && self.values == filled.len() {
            return Some("every row has another text".to_owned());
        }
        if self.kind == CsvCellKind::Texts && self.values > MANY_CATEGORIES {
            return Some(format!("{} different texts, such as `{first}`", self.values));
        }
        (self.kind == CsvCellKind::WholeNumbers && self.numbers_rows(table, column))
            .then(|| "it numbers the rows".to_owned())
    }

    /// Whether each row has another number, by one more than the row before it or in a column that is called `id`.
    fn numbers_rows(&self, table: &RawTable, column: usize) -> bool {
        let rows = table.rows.len();
        let number = |r: usize| table.number(r, column);
        let counts = || {
            (1..rows).all(|r| number(r).zip(number(r - 1)).is_some_and(|(own, before)| own == before + 1.0))
        };
        self.values == rows && (called_index(&self.name.to_lowercase()) || counts())
    }

    /// `numbers`, or `5 texts, one-hot`.
    pub fn in_words(&self) -> String {
        match self.kind {
            CsvCellKind::Texts => format!("{} texts, one-hot", self.values),
            CsvCellKind::WholeNumbers | CsvCellKind::Numbers => "numbers".to_owned(),
        }
    }
}
