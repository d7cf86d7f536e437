//! The rows of a table of images: each has a name and a label.

use super::csv_table::{CategoryIndex, RawTable};
use super::image_names::{ImageName, ImageNames};
use super::table_values::classes;
use base::display;
use base::error::{Error, Result};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Rows in a message.
const MAX_LISTED: usize = 20;

/// A table with the columns of the names and of the labels.
pub(super) struct ImageTable {
    pub table: RawTable,
    pub image: usize,
    /// `None`: no row has a label.
    pub target: Option<usize>,
}

/// A row with an image that is there.
#[derive(Clone, Debug)]
pub(super) struct ImageRow {
    /// In the table, from 0.
    pub row: usize,
    /// From the root.
    pub path: PathBuf,
}

/// Rows that are left out or wrong, each in words.
#[derive(Default)]
struct Wrong {
    outside: Vec<String>,
    several: Vec<String>,
    missing: Vec<String>,
    equal: Vec<String>,
    other: Vec<String>,
}

impl ImageTable {
    /// `""`: the row has none.
    pub fn label(&self, row: usize) -> &str {
        self.target.map_or("", |target| &self.table.rows[row][target])
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.table.rows.iter().map(|row| &row[self.image])
    }

    /// The labels as classes, sorted as those of tables are.
    pub fn classes(&self) -> CategoryIndex {
        self.target.map(|target| classes(&self.table, target)).unwrap_or_default()
    }

    /// The name of the column of the labels, for messages.
    pub fn target_name(&self) -> String {
        self.target.map_or_else(String::new, |target| display::name(&self.table.header[target]))
    }

    /// The place of a label, for messages.
    pub fn place(&self, row: usize) -> String {
        self.table.location(row, self.target.unwrap_or(self.image))
    }

    fn line(&self, row: usize) -> String {
        format!("line {}", self.table.rows[row].position().map_or(0, csv::Position::line))
    }

    /// A row with its image, in words.
    pub fn in_words(&self, row: usize) -> String {
        format!("{}: `{}`", self.line(row), display::name(&self.table.rows[row][self.image]))
    }

    /// The rows that have a label and an image of their own, in their order. With `skip`, those whose image is missing are left out.
    ///
    /// # Errors
    /// A row has no label, no image or one out of the root, or an image has two labels
    /// (`ErrorKind::Spec`).
    pub fn rows(
        &self,
        names: &mut ImageNames,
        place: &str,
        skip: bool,
        say: &mut dyn FnMut(&str),
    ) -> Result<Vec<ImageRow>> {
        let rows = 0..self.table.rows.len();
        let unlabelled = rows.clone().filter(|row| self.label(*row).is_empty());
        let unlabelled: Vec<String> = unlabelled.map(|row| self.in_words(row)).collect();
        let what =
            format!("{} no label in `{}`", rows_in_words(&unlabelled, ["has", "have"]), self.target_name());
        let hint = "remove such rows; only a test table may be without labels, and is left out then";
        self.none(&unlabelled, &what, hint)?;
        let (mut found, mut wrong, mut first) = (Vec::new(), Wrong::default(), BTreeMap::new());
        for row in rows {
            let path = match names.find(&self.table.rows[row][self.image]) {
                ImageName::Image(path) => path,
                ImageName::Outside => {
                    wrong.outside.push(self.in_words(row));
                    continue;
                }
                ImageName::Missing => {
                    wrong.missing.push(self.in_words(row));
                    continue;
                }
                ImageName::Several(paths) => {
                    let paths: Vec<String> =
                        paths.iter().map(|path| display::name(&path.to_string_lossy())).collect();
                    wrong.several.push(format!("{} ({})", self.in_words(row), paths.join(", ")));
                    continue;
                }
            };
            let before = *first.entry(path.clone()).or_insert(row);
            let as_before = |what: String| format!("{}, as {}{what}", self.in_words(row), self.line(before));
            match self.label(row) == self.label(before) {
                _ if before == row => found.push(ImageRow { row, path }),
                true => wrong.equal.push(as_before(String::new())),
                false => {
                    let [own, others] = [row, before].map(|row| display::name(self.label(row)));
                    wrong.other.push(as_before(format!(", but `{own}` and not `{others}`")));
                }
            }
        }
        self.check(&wrong, place, skip, say)?;
        Ok(found)
    }

    fn check(&self, wrong: &Wrong, place: &str, skip: bool, say: &mut dyn FnMut(&str)) -> Result<()> {
        let Wrong { outside, several, missing, equal, other } = wrong;
        let what =
            format!("{} an absolute path or one that leaves `root`", rows_in_words(outside, ["has", "have"]));
        let hint = "names are relative to the folder that `[dataset] images` names in `root`";
        self.none(outside, &what, hint)?;
        let what = format!("{} several images", rows_in_words(several, ["names", "name"]));
        self.none(several, &what, "write the names with their extensions")?;
        let what =
            format!("{} the image of an earlier row another label", rows_in_words(other, ["gives", "give"]));
        self.none(other, &what, "an image has one label: remove the wrong rows")?;

        let of = self.table.rows.len();
        let what = format!(
            "{} of {of} without a PNG or JPEG file in {place}",
            rows_in_words(missing, [""; 2]).trim_end()
        );
        let hint = "complete the folder, correct `[dataset] images`, or leave such rows out with `bad_images = \"skip\"`";
        if !skip {
            self.none(missing, &what, hint)?;
        }
        let again = format!("{} an earlier row", rows_in_words(equal, ["repeats", "repeat"]));
        for (rows, what) in [(missing, what), (equal, again)].iter().filter(|(rows, _)| !rows.is_empty()) {
            let (path, rows) = (&self.table.path, listed(rows, "; "));
            say(&format!("warning: {path}: {what}, left out: {rows}"));
        }
        Ok(())
    }

    /// # Errors
    /// There are such rows.
    fn none(&self, rows: &[String], what: &str, hint: &str) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (path, rows) = (&self.table.path, listed(rows, "\n  "));
        Err(Error::data(format!("{path}: {what}:\n  {rows}")).hint(hint))
    }
}

/// `1 row has`, `2 rows have`.
fn rows_in_words(rows: &[String], [one, many]: [&str; 2]) -> String {
    format!("{} {}", display::count(rows.len(), "row"), if rows.len() == 1 { one } else { many })
}

pub(super) fn listed(rows: &[String], between: &str) -> String {
    let shown = rows[..rows.len().min(MAX_LISTED)].join(between);
    match rows.len().saturating_sub(MAX_LISTED) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}
