//! Columns of numbers and texts as a table.

use super::columns::{Cell, CellKind, RowSet, Stored, column, same_in_splits};
use super::csv_table::RawTable;
use super::table::{Sections, TableKeys, Task};
use super::table_known::known_columns;
use crate::split::SplitOptions;
use crate::{Splits, TableEncoding};
use base::display;
use base::error::{Error, Result};
use csv::StringRecord;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

/// The rows of all splits as one table.
pub(super) fn open_table(
    stored: &mut Stored,
    keys: &TableKeys,
    target: &str,
    split: &SplitOptions,
    known: Option<&TableEncoding>,
) -> Result<Splits> {
    let names = names(&*stored.train, keys, target, known)?;
    if let Some(test) = &stored.test
        && !is_labelled(&**test, target, keys)?
    {
        stored.test = None;
    }
    let sets: Vec<Arc<dyn RowSet>> = [Some(&stored.train), stored.val.as_ref(), stored.test.as_ref()]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let used: Vec<&str> = names.iter().map(String::as_str).collect();
    for set in &sets {
        same_in_splits(&*stored.train, &**set, &used)?;
    }
    let blanks = known.map_or(&keys.blank_marks, |known| &known.blank_marks);
    let table = raw_table(&stored.place, sets, &names, blanks.clone())?;
    let sections = Sections {
        train: stored.train.len(),
        val: stored.val.as_ref().map(|set| set.len()),
        test: stored.test.as_ref().map(|set| set.len()),
    };
    with_classes(keys, &*stored.train, &names).splits(table, target, sections, split, known)
}

/// The cells of these columns in the rows of `sets`.
pub(super) fn raw_table(
    place: &str,
    sets: Vec<Arc<dyn RowSet>>,
    names: &[String],
    mut blanks: Vec<String>,
) -> Result<RawTable> {
    // No value is an empty cell, whatever texts are.
    blanks.push(String::new());
    let row_place = Box::new(place_of_rows(sets.clone()));
    let mut table = RawTable::of_rows(place.to_owned(), names.to_vec(), blanks, row_place)?;
    sets.iter().try_for_each(|set| add_rows(&mut table, &**set, names))?;
    Ok(table)
}

/// The columns in use: the features, which are those of `known` if that is given, then the target.
fn names(
    set: &dyn RowSet,
    keys: &TableKeys,
    target: &str,
    known: Option<&TableEncoding>,
) -> Result<Vec<String>> {
    column(set, target, "target")?;
    let mut names: Vec<String> = match (known, &keys.features) {
        (Some(known), _) => {
            let header: Vec<String> = set.columns().iter().map(|column| column.name.clone()).collect();
            let places = known_columns(set.place(), &header, known)?;
            places.into_iter().map(|at| header[at].clone()).collect()
        }
        (None, Some(names)) => {
            names.iter().try_for_each(|name| column(set, name, "features").map(drop))?;
            names.clone()
        }
        (None, None) => {
            let others = set.columns().iter().filter(|column| column.name != target && !column.counter);
            others.map(|column| column.name.clone()).collect()
        }
    };
    for name in keys.categories.keys().filter(|_| known.is_none()) {
        column(set, name, "categories")?;
    }
    names.push(target.to_owned());
    let known = |name: &String| set.columns().iter().find(|column| column.name == *name);
    for column in names.iter().filter_map(known) {
        let what = match &column.kind {
            CellKind::Values | CellKind::Texts => continue,
            CellKind::Bytes => "holds bytes",
            CellKind::Lists => "holds lists",
            CellKind::Other(what) => what,
        };
        let (place, name) = (set.place(), display::name(&column.name));
        return Err(Error::data(format!("{place}: the column `{name}` {what}, which no table has"))
            .hint("list the columns of numbers and texts in `[dataset] features`"));
    }
    Ok(names)
}

/// Whether any row has a target.
fn is_labelled(set: &dyn RowSet, target: &str, keys: &TableKeys) -> Result<bool> {
    let at = column(set, target, "target")?;
    let classes = set.columns()[at].classes.is_some();
    let mut found = set.len() == 0;
    set.read(&[at], &mut |_, cells| {
        found = filled(&cells[0], classes)
            .is_ok_and(|text| !text.is_empty() && !keys.blank_marks.contains(&text));
        Ok(if found { Break(()) } else { Continue(()) })
    })?;
    Ok(found)
}

/// The cell as a text; a class that is not known is an empty one.
fn filled(cell: &Cell<'_>, classes: bool) -> Result<String, String> {
    match cell {
        Cell::Integer(-1) if classes => Ok(String::new()),
        cell => cell.to_text().map(|text| text.into_owned()),
    }
}

/// The place of each row of the table, which has the rows of `sets`.
fn place_of_rows(sets: Vec<Arc<dyn RowSet>>) -> impl Fn(u64) -> String + Send + Sync {
    move |row| {
        let mut row = row as usize;
        for set in &sets {
            match row.checked_sub(set.len()) {
                Some(behind) => row = behind,
                None => return set.place_of(row),
            }
        }
        String::new()
    }
}

fn add_rows(table: &mut RawTable, set: &dyn RowSet, names: &[String]) -> Result<()> {
    let key = |i: usize| if i + 1 == names.len() { "target" } else { "features" };
    let columns = names.iter().enumerate().map(|(i, name)| column(set, name, key(i)));
    let columns = columns.collect::<Result<Vec<usize>>>()?;
    let classes: Vec<bool> = columns.iter().map(|at| set.columns()[*at].classes.is_some()).collect();
    set.read(&columns, &mut |row, cells| {
        let mut record = StringRecord::new();
        for (i, cell) in cells.iter().enumerate() {
            let text = filled(cell, classes[i]).map_err(|what| {
                let (place, name) = (set.place_of(row), display::name(&names[i]));
                Error::data(format!("{place}, column `{name}`: it holds {what}, which no table has"))
                    .hint("list the columns of numbers and texts in `[dataset] features`")
            })?;
            record.push_field(&text);
        }
        table.push(record);
        Ok(Continue(()))
    })
}

/// The keys, with the classes of columns whose numbers stand for some. `names` are the columns in use, the target last.
fn with_classes(keys: &TableKeys, set: &dyn RowSet, names: &[String]) -> TableKeys {
    let mut keys = keys.clone();
    for column in set.columns() {
        let Some(classes) = &column.classes else { continue };
        if names.last() != Some(&column.name) || keys.task == Task::Classification {
            let own = keys.categories.contains_key(&column.name);
            if names.last() == Some(&column.name) && !own {
                keys.class_names = Some(classes.clone());
            }
            let numbers = || (0..classes.len()).map(|i| i.to_string()).collect();
            keys.categories.entry(column.name.clone()).or_insert_with(numbers);
        }
    }
    keys.categories.retain(|name, _| names.contains(name));
    keys
}
