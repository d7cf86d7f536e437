//! Categories and classes that no training row has: a model learns nothing of them.

use super::csv_table::RawTable;
use super::table::{TableKeys, Task};
use super::table_values::labels;
use crate::split::Subset;
use base::display;
use base::error::{Error, Result};
use std::collections::BTreeMap;

impl TableKeys {
    /// Checks the classes of the rows behind those of training, which are the first `training`. Classes that the spec or the file lists
    /// may have no rows.
    ///
    /// # Errors
    /// Training lacks the class of a row (`ErrorKind::Spec`).
    pub(super) fn check_classes(&self, table: &RawTable, target: usize, training: usize) -> Result<()> {
        let listed = self.class_names.is_some() || self.categories.contains_key(&table.header[target]);
        if self.task != Task::Classification || listed {
            return Ok(());
        }
        let known = labels(table, target, 0..training);
        let class = |row: usize| &table.rows[row][target];
        let Some(row) = (training..table.rows.len()).find(|row| !known.contains(class(*row))) else {
            return Ok(());
        };
        let (place, class) = (table.location(row, target), display::name(class(row)));
        Err(Error::data(format!("{place}: the class `{class}` is missing from training"))
            .hint("remove its rows, or add some to the training table"))
    }
}

/// A warning about categories of a column that are in other rows only.
pub(super) fn untrained_categories(table: &RawTable, column: usize, train: &Subset) -> Option<String> {
    let known = labels(table, column, (0..train.len()).map(|i| train.get(i)));
    let mut others: BTreeMap<&str, usize> = BTreeMap::new();
    for row in (0..table.rows.len()).filter(|row| !table.is_blank(*row, column)) {
        let cell = &table.rows[row][column];
        if !known.contains(cell) {
            *others.entry(cell).or_default() += 1;
        }
    }
    let (name, cells) = others.first_key_value()?;
    let (header, name) = (display::name(&table.header[column]), display::name(name));
    let cells = display::count(*cells, "cell");
    Some(match others.len() {
        1 => format!("column `{header}`: `{name}` is in no training row ({cells})"),
        n => format!("column `{header}`: {n} categories are in no training row, such as `{name}` ({cells})"),
    })
}
