//! Reports how the columns of a table were interpreted, so that the user notices a wrong inference.

use super::csv_columns::{foreign_text, is_index};
use super::csv_set::Targets;
use super::csv_table::{ColumnType, RawTable, plain_number, reads_as_number};
use super::table_blanks::Dropped;
use base::display;
use std::collections::BTreeMap;

/// A text column with more values than this probably holds names, formatted numbers or notes.
pub(super) const MANY_CATEGORIES: usize = 100;
/// Maximum number of columns listed by name, per kind.
const MAX_LISTED: usize = 20;

/// The interpretation of `columns` and of the target. Columns in `categories` of the spec were not inferred. `more` are further warnings.
pub(super) fn remarks(
    table: &RawTable,
    columns: &[(usize, ColumnType)],
    (target, targets): (usize, &Targets),
    categories: &BTreeMap<String, Vec<String>>,
    (dropped, more): (Option<&Dropped>, Vec<String>),
) -> Vec<String> {
    let name = |column: usize| format!("`{}`", display::name(&table.header[column]));
    let numbers =
        columns.iter().filter(|(_, kind)| *kind == ColumnType::Numbers).map(|(c, _)| name(*c)).collect();
    let texts = columns.iter().filter_map(|(c, kind)| match kind {
        ColumnType::Numbers => None,
        ColumnType::Categories(names) => Some(format!("{} ({})", name(*c), names.len())),
    });
    let mut parts = vec![rows_in_words(table, dropped)];
    parts.extend(list_columns("numbers: ", numbers));
    parts.extend(list_columns("categories, one-hot: ", texts.collect()));
    parts.push(format!("target: {}, {}", name(target), targets.in_words()));
    let mut lines = vec![format!("{}: {}", table.path, parts.join("; "))];
    let guessed = columns.iter().filter(|(c, _)| !categories.contains_key(&table.header[*c]));
    if let Targets::Classes { names, .. } = targets
        && !categories.contains_key(&table.header[target])
    {
        lines.extend(
            target_warning(table, target, names.len())
                .map(|doubt| format!("warning: {}, {doubt}", table.path)),
        );
    }
    add_warnings(&mut lines, table, guessed.filter_map(|(c, kind)| text_column_warning(table, *c, kind)));
    let indices = columns.iter().filter(|(c, kind)| *kind == ColumnType::Numbers && is_index(table, *c));
    add_warnings(&mut lines, table, indices.map(|(c, _)| index_warning(table, *c)));
    add_warnings(
        &mut lines,
        table,
        dropped.map(|dropped| dropped.warnings(table, target)).unwrap_or_default(),
    );
    add_warnings(&mut lines, table, more);
    lines
}

/// `6 of 8 rows, the others have empty cells in `size` (1), `colour` (1)`.
pub(super) fn rows_in_words(table: &RawTable, dropped: Option<&Dropped>) -> String {
    let rows = table.rows.len();
    let Some(dropped) = dropped else { return format!("{rows} rows") };
    let column = |(c, n): &(usize, usize)| format!("`{}` ({n})", display::name(&table.header[*c]));
    let columns = list_columns("", dropped.blank.iter().map(column).collect()).unwrap_or_default();
    format!("{rows} of {} rows, the others have empty cells in {columns}", dropped.of)
}

/// Why a column is probably no feature.
fn index_warning(table: &RawTable, column: usize) -> String {
    let name = display::name(&table.header[column]);
    let what = match name.trim() {
        "" => format!(
            "column {} has no name and numbers the rows, as `to_csv()` of pandas writes it",
            column + 1
        ),
        name => format!("column `{name}` has another whole number in each row"),
    };
    format!("{what}: to leave it out, list the other columns in `[dataset] features`")
}

/// Adds warnings of one kind, which may be many.
fn add_warnings(lines: &mut Vec<String>, table: &RawTable, warnings: impl IntoIterator<Item = String>) {
    let mut warnings = warnings.into_iter();
    let listed = warnings.by_ref().take(MAX_LISTED);
    lines.extend(listed.map(|doubt| format!("warning: {}, {doubt}", table.path)));
    let more = warnings.count();
    if more > 0 {
        lines.push(format!("warning: {}: the same applies to {more} more columns", table.path));
    }
}

fn list_columns(title: &str, mut names: Vec<String>) -> Option<String> {
    let more = names.len().saturating_sub(MAX_LISTED);
    names.truncate(MAX_LISTED);
    if more > 0 {
        names.push(format!("{more} more"));
    }
    (!names.is_empty()).then(|| format!("{title}{}", names.join(", ")))
}

/// Why a column was probably mistaken for text.
fn text_column_warning(table: &RawTable, column: usize, kind: &ColumnType) -> Option<String> {
    let ColumnType::Categories(names) = kind else { return None };
    let cells = || (0..table.rows.len()).filter(|&r| !table.is_blank(r, column));
    let texts = || cells().filter(|&r| table.number(r, column).is_none()).map(|r| &table.rows[r][column]);
    let first = texts().next()?;
    let header = display::name(&table.header[column]);
    let taken = format!(
        "column `{header}` is read as text with {} values, such as `{}`",
        names.len(),
        display::name(first)
    );
    if texts().all(reads_as_number) {
        return Some(format!("{taken}: {}", plain_number(first)));
    }
    if let Some((mark, count)) = foreign_text(table, column) {
        let mark = display::name(mark);
        return Some(format!(
            "{taken}, although the others are numbers: if `{mark}`, in {count} cells, stands for a missing value, add it to `[dataset] blank_marks`"
        ));
    }
    if names.len() <= MANY_CATEGORIES {
        return None;
    }
    let each = match names.len() == cells().count() {
        true => "every row has a different value",
        false => "each value becomes an input of the model",
    };
    Some(format!("{taken}: {each}; to leave it out, list the other columns in `[dataset] features`"))
}

/// Why the target is probably not a class label: there are fewer than two rows per class on average.
pub(super) fn target_warning(table: &RawTable, target: usize, count: usize) -> Option<String> {
    let rows = table.rows.len();
    let first = table.rows.first().filter(|_| 2 * count > rows)?;
    let (header, first) = (display::name(&table.header[target]), display::name(&first[target]));
    let what = match (0..rows).all(|row| table.number(row, target).is_some()) {
        true => "for a numeric target, set `[dataset] task = \"regression\"`",
        false => "set `[dataset] target` to the column with the labels",
    };
    Some(format!("the target `{header}` has {count} classes in {rows} rows, such as `{first}`: {what}"))
}
