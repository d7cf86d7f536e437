//! Tables of text, on a terminal in no more columns than it has.

use super::room::{cut_to, narrowed};
use unicode_width::UnicodeWidthStr;

/// Between two columns.
const GAP: usize = 2;
/// Texts are not cut below this.
const LEAST: usize = 12;
/// Before whole columns are left out, longer texts are cut to this.
const ENOUGH: usize = 32;

/// A column's head, and how it is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The text above the column.
    pub head: String,
    /// Cells are set flush right, as numbers are.
    pub right: bool,
    /// Where there is no space for all, those with the largest number are left out first; those with 0 are kept.
    pub spare: u8,
    /// Its cells are numbers, or short: they are not cut.
    pub whole: bool,
}

impl Column {
    /// A column of text.
    pub fn left(head: &str, spare: u8) -> Self {
        Self { head: head.to_owned(), right: false, spare, whole: false }
    }

    /// A column of numbers.
    pub fn right(head: &str, spare: u8) -> Self {
        Self { head: head.to_owned(), right: true, spare, whole: true }
    }

    /// The same column, whose cells are not cut.
    pub fn whole(self) -> Self {
        Self { whole: true, ..self }
    }
}

/// Rows of text under heads; [`Self::text`] sets them.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// From left to right.
    pub columns: Vec<Column>,
    /// The cells of each row, one per column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// The lines, in at most `width` columns of a terminal if that is possible. Columns without any value are left out.
    pub fn text(mut self, width: Option<usize>) -> String {
        let heads = self.columns.iter_mut().map(|column| &mut column.head);
        heads.chain(self.rows.iter_mut().flatten()).for_each(|cell| *cell = super::piece(cell));
        self.keep(|table, at| table.rows.iter().any(|row| !row[at].is_empty()));
        if let Some(width) = width {
            self.fit(width);
        }
        let widths = self.widths();
        let heads: Vec<String> = self.columns.iter().map(|column| column.head.clone()).collect();
        std::iter::once(&heads).chain(&self.rows).map(|row| self.line(row, &widths)).collect()
    }

    /// The columns of a terminal that it takes at least, if no column is left out.
    pub fn least(&self) -> usize {
        across(&self.at_most(LEAST))
    }

    /// Leaves out columns that can be spared, and cuts texts.
    fn fit(&mut self, width: usize) {
        while across(&self.at_most(ENOUGH)) > width {
            let spare = self.columns.iter().map(|column| column.spare).max().unwrap_or(0);
            if spare == 0 {
                break;
            }
            let last = self.columns.iter().rposition(|column| column.spare == spare);
            self.keep(|_, at| Some(at) != last);
        }
        let widths = self.widths();
        let over = across(&widths).saturating_sub(width);
        let widths = narrowed(&widths, &self.at_most(LEAST), over);
        let heads = self.columns.iter_mut().map(|column| &mut column.head).collect();
        for row in std::iter::once(heads).chain(self.rows.iter_mut().map(|row| row.iter_mut().collect())) {
            cut(row, &widths);
        }
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

    /// The widths with texts that are cut to `most`.
    fn at_most(&self, most: usize) -> Vec<usize> {
        let cut = |(column, width): (&Column, usize)| if column.whole { width } else { width.min(most) };
        self.columns.iter().zip(self.widths()).map(cut).collect()
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

/// The width of a line with columns of these widths.
fn across(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn cut(row: Vec<&mut String>, widths: &[usize]) {
    for (cell, width) in row.into_iter().zip(widths) {
        if cell.width() > *width {
            *cell = cut_to(cell, *width).into_owned();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = vec![
            Column::left("RUN", 0),
            Column::right("LOSS", 0),
            Column::left("NOTE", 0),
            Column::right("SIZE", 1),
        ];
        let row = |name: &str, note: &str| [name, "0.123456", note, "12 MiB"].map(str::to_owned).to_vec();
        let long = "a note that is longer than all of the others";
        Table {
            columns, rows: vec![row("実験実験実験実験実験実験実験実験実験実験", long), row("b", "")]
        }
    }

    #[test]
    fn a_file_gets_all_of_it() {
        assert_eq!(
            table().text(None),
            "RUN                                           LOSS  NOTE                                            SIZE\n\
             実験実験実験実験実験実験実験実験実験実験  0.123456  a note that is longer than all of the others  12 MiB\n\
             b                                         0.123456                                                12 MiB\n"
        );
    }

    #[test]
    fn texts_are_cut_and_numbers_are_not() {
        for width in 38..120 {
            let text = table().text(Some(width));
            assert!(text.lines().all(|line| line.width() <= width), "{width}\n{text}");
            assert_eq!(text.matches("0.123456").count(), 2, "{width}\n{text}");
        }
        // The size is left out only when texts are short enough.
        let shown = |width| table().text(Some(width)).contains("12 MiB");
        assert!(shown(84) && !shown(83));
        assert_eq!(
            table().text(Some(38)),
            "RUN                LOSS  NOTE\n\
             実験実験実験…  0.123456  a note that …\n\
             b              0.123456\n"
        );
        assert_eq!(table().least(), 44);
    }
}
