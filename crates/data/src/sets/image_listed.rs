//! The images that the tables of `image-csv` name: checks across tables, and what a user should know of them.

use super::csv_remarks::target_warning;
use super::csv_table::number;
use super::image_names::ImageNames;
use super::image_rows::{ImageRow, ImageTable, listed};
use super::table::Task;
use base::display;
use base::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The images of a table.
pub(super) struct Listed {
    pub key: &'static str,
    pub table: ImageTable,
    pub rows: Vec<ImageRow>,
}

impl Listed {
    pub fn labels(&self) -> BTreeSet<&str> {
        self.rows.iter().map(|row| self.table.label(row.row)).collect()
    }

    /// The labels as numbers.
    ///
    /// # Errors
    /// One is none (`ErrorKind::Spec`).
    pub fn numbers(&self) -> Result<Vec<f64>> {
        let number = |row: &ImageRow| {
            let label = self.table.label(row.row);
            number(label).filter(|x| (*x as f32).is_finite()).ok_or_else(|| {
                let (place, label) = (self.table.place(row.row), display::name(label));
                Error::data(format!("{place}: the label `{label}` is not a number of 32 bits"))
                    .hint("for classes, set `[dataset] task = \"classification\"`")
            })
        };
        self.rows.iter().map(number).collect()
    }
}

/// Says what is not used, and what is in two splits.
pub(super) fn remarks(
    task: Task,
    found: &[Listed],
    folders: &BTreeMap<&str, ImageNames>,
    say: &mut dyn FnMut(&str),
) {
    let all = folders.values().flat_map(|names| &names.images);
    let named: BTreeSet<&PathBuf> = all.clone().filter(|(_, named)| **named).map(|(path, _)| path).collect();
    for names in folders.values() {
        let left: Vec<&PathBuf> = names.images.keys().filter(|path| !named.contains(path)).collect();
        if let Some(first) = left.first() {
            let (place, n, of) = (names.place(), left.len(), names.images.len());
            let first = display::name(&first.to_string_lossy());
            say(&format!("{}: {n} of {of} images are in no table, such as {first}", place.display()));
        }
    }
    let Some((train, others)) = found.split_first() else { return };
    let trained: BTreeSet<&PathBuf> = train.rows.iter().map(|row| &row.path).collect();
    for other in others {
        let both = other.rows.iter().filter(|row| trained.contains(&row.path));
        let both: Vec<String> = both.map(|row| other.table.in_words(row.row)).collect();
        if !both.is_empty() {
            let (path, n) = (&other.table.table.path, both.len());
            say(&format!("warning: {path}: {n} images are training images, too: {}", listed(&both, "; ")));
        }
    }
    if task == Task::Classification {
        let table = &train.table.table;
        let doubt = train.table.target.and_then(|target| target_warning(table, target, train.labels().len()));
        if let Some(doubt) = doubt {
            say(&format!("warning: {}, {doubt}", table.path));
        }
    }
}

/// Training has each class, at least two, and they have images.
pub(super) fn check_labels(task: Task, found: &[Listed]) -> Result<()> {
    let Some((train, others)) = found.split_first() else { return Ok(()) };
    for Listed { table, rows, .. } in found {
        if rows.is_empty() {
            return Err(Error::data(format!("{} names no image that can be used", table.table.path)));
        }
    }
    if task == Task::Regression {
        return Ok(());
    }
    let (path, labels) = (&train.table.table.path, train.labels());
    let all = 0..train.table.table.rows.len();
    if let Some(lost) = all.map(|row| train.table.label(row)).find(|label| !labels.contains(label)) {
        let lost = display::name(lost);
        return Err(Error::data(format!(
            "{path}: no image of the class `{lost}` can be read (`bad_images = \"skip\"`)"
        )));
    }
    if labels.len() < 2 {
        let target = train.table.target_name();
        return Err(Error::data(format!(
            "{path}: `{target}` has one class only, and there is nothing to learn"
        ))
        .hint("`[dataset] target` names the column of the labels"));
    }
    for Listed { table, rows, .. } in others {
        if let Some(row) = rows.iter().find(|row| !labels.contains(table.label(row.row))) {
            let (place, class) = (table.place(row.row), display::name(table.label(row.row)));
            return Err(Error::data(format!("{place}: the class `{class}` is missing from training")));
        }
    }
    Ok(())
}
