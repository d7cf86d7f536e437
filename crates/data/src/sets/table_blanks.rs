//! Rows with blank cells: they are dropped, or refused where nothing fills the cells.

use super::csv_table::RawTable;
use super::table::{Blanks, Sections, TableKeys, Task};
use base::display;
use base::error::{Error, Result};
use std::collections::BTreeMap;

/// Lost classes in messages.
const MAX_LISTED: usize = 10;

/// The rows that `blanks = "drop"` has dropped.
pub(super) struct Dropped {
    /// Rows before.
    pub of: usize,
    /// Columns with blank cells in these rows, and in how many.
    pub blank: Vec<(usize, usize)>,
    /// Classes of which no row is left, and how many rows they had.
    classes: Vec<(String, usize)>,
}

impl TableKeys {
    /// Drops the rows with blank cells, or checks that blank cells can be filled. A blank target can't.
    pub(super) fn handle_blanks(
        &self,
        table: &mut RawTable,
        columns: &[usize],
        target: usize,
        sections: &mut Sections,
    ) -> Result<Option<Dropped>> {
        let used: Vec<usize> = columns.iter().copied().chain([target]).collect();
        let blank_in = |table: &RawTable, row: usize| used.iter().copied().find(|&c| table.is_blank(row, c));
        if self.blanks == Blanks::Drop {
            let keep: Vec<bool> = (0..table.rows.len()).map(|r| blank_in(table, r).is_none()).collect();
            let dropped = keep.contains(&false).then(|| self.dropped(table, &used, target, &keep));
            *sections = sections.kept(&keep);
            let mut keep = keep.into_iter();
            table.rows.retain(|_| keep.next().unwrap_or(true));
            return Ok(dropped);
        }
        for row in 0..table.rows.len() {
            if table.is_blank(row, target) {
                let drops = "`blanks = \"drop\"` drops such rows";
                return Err(match (&table.rows[row][target], self.task) {
                    ("", _) => Error::data(format!("{}: the target is blank", table.location(row, target)))
                        .hint(drops),
                    (mark, Task::Regression) => blank_mark(table, row, target, mark).hint(drops),
                    (mark, Task::Classification) => blank_mark(table, row, target, mark)
                        .hint(format!("if it is a class, leave it out of `[dataset] blank_marks`; {drops}")),
                });
            }
            if let Some(column) = blank_in(table, row).filter(|_| self.blanks == Blanks::Error) {
                let keys = "set `[dataset] blanks` to \"mean\", \"zero\" or \"drop\"";
                return Err(match &table.rows[row][column] {
                    "" => {
                        Error::data(format!("{}: the cell is blank", table.location(row, column))).hint(keys)
                    }
                    mark => blank_mark(table, row, column, mark)
                        .hint(format!("{keys}, or leave it out of `blank_marks`")),
                });
            }
        }
        Ok(None)
    }

    fn dropped(&self, table: &RawTable, used: &[usize], target: usize, keep: &[bool]) -> Dropped {
        let rows = |kept: bool| (0..keep.len()).filter(move |row| keep[*row] == kept);
        let blanks = |column: usize| rows(false).filter(|row| table.is_blank(*row, column)).count();
        let blank = used.iter().map(|&column| (column, blanks(column))).filter(|(_, n)| *n > 0).collect();
        let mut lost: BTreeMap<&str, usize> = BTreeMap::new();
        if self.task == Task::Classification {
            for row in rows(false) {
                *lost.entry(&table.rows[row][target]).or_default() += 1;
            }
            lost.remove("");
            for row in rows(true) {
                lost.remove(&table.rows[row][target]);
            }
        }
        let classes = lost.into_iter().map(|(class, rows)| (class.to_owned(), rows)).collect();
        Dropped { of: keep.len(), blank, classes }
    }
}

fn blank_mark(table: &RawTable, row: usize, column: usize, mark: &str) -> Error {
    let (place, mark) = (table.location(row, column), display::name(mark));
    Error::data(format!("{place}: the cell `{mark}` counts as empty"))
}

impl Dropped {
    /// Warnings about classes that are lost.
    pub fn warnings(&self, table: &RawTable, target: usize) -> Vec<String> {
        let header = display::name(&table.header[target]);
        let lost = self.classes.iter().take(MAX_LISTED).map(|(class, rows)| {
            let what = format!(
                "class `{}` of the target `{header}` is lost with its {}",
                display::name(class),
                display::count(*rows, "row")
            );
            match table.blank_marks().contains(class) {
                true => format!(
                    "{what}: it counts as an empty cell; if it is a class, leave it out of `[dataset] blank_marks`"
                ),
                false => format!(
                    "{what}, which have empty cells; `blanks = \"mean\"` or \"zero\" keeps them"
                ),
            }
        });
        lost.collect()
    }
}
