//! Tables of text.

use crate::show::cut;
use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: usize = 2;
/// The first column is not cut below this.
const LEAST: usize = 12;

/// A column's head, and how it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub head: String,
    pub right: bool,
    /// Where there is no space for all, those with the largest number are left out first; those with 0 are kept.
    pub spare: u8,
}

impl Column {
    pub fn left(head: &str, spare: u8) -> Self {
        Self { head: head.to_owned(), right: false, spare }
    }

    pub fn right(head: &str, spare: u8) -> Self {
        Self { head: head.to_owned(), right: true, spare }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The lines, in at most `width` columns of a terminal if that is possible. Columns without any value are left out.
    pub fn text(mut self, width: Option<usize>) -> String {
        self.keep(|table, at| table.rows.iter().any(|row| !row[at].is_empty()));
        while width.is_some_and(|width| self.width() > width) {
            let spare = self.columns.iter().map(|column| column.spare).max().unwrap_or(0);
            if spare == 0 {
                break;
            }
            let last = self.columns.iter().rposition(|column| column.spare == spare);
            self.keep(|_, at| Some(at) != last);
        }
        if let Some(over) = width.and_then(|width| self.width().checked_sub(width)).filter(|over| *over > 0) {
            let first = self.widths().first().copied().unwrap_or(0);
            let most = first.saturating_sub(over + 1).max(LEAST);
            self.rows.iter_mut().for_each(|row| row[0] = cut(&row[0], most).into_owned());
        }
        let widths = self.widths();
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.clone()).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    fn keep(&mut self, kept: impl Fn(&Self, usize) -> bool) {
        let kept: Vec<bool> = (0..self.columns.len()).map(|at| kept(self, at)).collect();
        let mut stays = kept.iter();
        self.columns.retain(|_| stays.next() == Some(&true));
        for row in &mut self.rows {
            let mut stays = kept.iter();
            row.retain(|_| stays.next() == Some(&true));
        }
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |(at, column): (usize, &Column)| {
            let cells = self.rows.iter().map(|row| row[at].width());
            cells.chain([column.head.width()]).max().unwrap_or(0)
        };
        self.columns.iter().enumerate().map(widest).collect()
    }

    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
    }

    fn line(&self, row: &[String], widths: &[usize]) -> String {
        let cell = |((text, width), column): ((&String, &usize), &Column)| {
            let space = " ".repeat(width.saturating_sub(text.width()));
            if column.right { space + text } else { text.clone() + &space }
        };
        let cells: Vec<String> = row.iter().zip(widths).zip(&self.columns).map(cell).collect();
        format!("{}\n", cells.join(&" ".repeat(GAP)).trim_end())
    }
}
