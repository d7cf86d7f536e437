//! Proposes how a model may learn from a table: the target, whether it is a number or a class, and the features, each with the reason.

use super::csv_columns::{Column, CsvCellKind};
use super::csv_table::{BLANK_MARKS, OTHER_MARKS, RawTable, plain_number, reads_as_number};
use super::table_values::labels;
use base::display;
use base::error::{Error, Result};
use std::collections::BTreeSet;

/// Fewer rows are not enough to learn from.
const MIN_ROWS: usize = 10;
/// Most values of a target of whole numbers that are taken for classes, each with this many rows on average.
const MAX_NUMBER_CLASSES: usize = 20;
const MIN_ROWS_PER_CLASS: usize = 5;
/// Names that targets have, and last words of such names.
const TARGETS: [&str; 10] =
    ["target", "label", "labels", "class", "y", "outcome", "response", "output", "diagnosis", "species"];
const EXIT_IO_TIMEOUT: [&str; 7] = ["target", "label", "class", "outcome", "price", "value", "output"];

/// How a model may learn from a table.
#[derive(Debug)]
pub struct CsvProposal {
    /// What separates the columns.
    pub delimiter: char,
    /// Rows that are left after [`blanks`](Self::blanks).
    pub rows: usize,
    /// The column to predict.
    pub target: String,
    /// Why this one.
    pub target_reason: String,
    /// The classes of the target; `None` if it is a number.
    pub classes: Option<usize>,
    /// Why it is a class, or a number.
    pub task_reason: String,
    /// The other columns that a model can use, each with a text about its type.
    pub features: Vec<(String, String)>,
    /// The other columns, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// The value of `blanks` that the empty cells need, with the reason.
    pub blanks: Option<(&'static str, String)>,
    /// Texts of the target that stand for an empty cell: `blank_marks` needs them.
    pub marks: Vec<String>,
    /// Columns that have the name of a target but can't be it, each with the reason.
    pub passed_over: Vec<(String, String)>,
}

impl CsvProposal {
    /// `blank_marks`, if it is not the usual ones.
    pub fn blank_marks(&self) -> Option<Vec<String>> {
        let all = || BLANK_MARKS.iter().copied().chain(self.marks.iter().map(String::as_str));
        (!self.marks.is_empty()).then(|| all().map(str::to_owned).collect())
    }
}

/// What is known of a table from others.
#[derive(Default)]
pub(super) struct Beside {
    /// Columns that a model can't use, each with the reason.
    pub useless: Reasons,
    /// Columns that another table lacks: the target may be one of them, and no other is used.
    pub lacking: Vec<String>,
    /// The name of that table.
    pub lacks: String,
}

/// The texts that stand for empty cells in the first column with the name of a target: nearly all other cells are numbers.
pub(super) fn marks(table: &RawTable) -> Vec<String> {
    let Some(column) = named(&table.header).into_iter().flatten().next() else { return Vec::new() };
    let filled = (0..table.rows.len()).filter(|r| !table.is_blank(*r, column));
    let (numbers, texts): (Vec<usize>, Vec<usize>) = filled.partition(|r| table.number(*r, column).is_some());
    let texts: Vec<&str> = texts.into_iter().map(|r| &table.rows[r][column]).collect();
    let mut found: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    found.sort();
    found.dedup();
    let all = texts.len() < numbers.len() && texts.iter().all(|text| OTHER_MARKS.contains(text));
    if all { found } else { Vec::new() }
}

/// Columns with the name of a target, the likelier ones first, and those whose names end so, the last one first.
fn named(header: &[String]) -> [Vec<usize>; 2] {
    let lower = |i: &usize| header[*i].to_lowercase();
    let called = |name: &'static str| (0..header.len()).filter(move |i| lower(i) == *name);
    let last_word = |i: &usize| {
        let name = lower(i);
        name.rsplit(|c: char| !c.is_alphanumeric()).next().is_some_and(|word| EXIT_IO_TIMEOUT.contains(&word))
    };
    [
        TARGETS.iter().flat_map(|name| called(name).collect::<Vec<_>>()).collect(),
        (0..header.len()).rev().filter(last_word).collect(),
    ]
}

/// Looks at the columns of a table.
pub(super) fn propose(table: &RawTable, marks: Vec<String>, beside: &Beside) -> Result<CsvProposal> {
    let rows = table.rows.len();
    if rows < MIN_ROWS {
        return Err(Error::data(format!("{} has {rows} rows; a proposal needs {MIN_ROWS}", table.path)));
    }
    let mut columns: Vec<Column> = (0..table.header.len()).map(|c| Column::new(table, c)).collect();
    for column in &mut columns {
        let known = beside.useless.iter().find(|(name, _)| *name == column.name);
        column.useless = known.map(|(_, why)| why.clone()).or(column.useless.take());
    }
    let unusable = |why: String, columns: &[Column]| {
        let error = Error::data(format!("{}: {why}\n{}", table.path, reasons(columns)));
        let cells = |c: usize| (0..table.rows.len()).map(move |r| &table.rows[r][c]);
        let formatted =
            |c: usize| cells(c).find(|cell| columns[c].useless.is_some() && reads_as_number(cell));
        match (0..columns.len()).find_map(formatted) {
            Some(cell) => error.hint(plain_number(cell)),
            None => error,
        }
    };
    let (target, target_reason, passed_over) = target(&table.header, &columns, beside)
        .ok_or_else(|| unusable("no column can be a target".to_owned(), &columns))?;
    for (i, column) in columns.iter_mut().enumerate() {
        if i != target && beside.lacking.contains(&column.name) {
            column.useless.get_or_insert_with(|| format!("{} lacks it", beside.lacks));
        }
    }
    let others = || columns.iter().enumerate().filter(|(i, _)| *i != target);
    let used: Vec<usize> = others().filter(|(_, c)| c.useless.is_none()).map(|(i, _)| i).collect();
    if used.is_empty() {
        let target = display::name(&columns[target].name);
        return Err(unusable(format!("besides the target `{target}`, no column can be a feature"), &columns));
    }
    let (rows, blanks) = blanks(table, target, &used)?;
    let labels = labels(table, target, rows.iter().copied()).len();
    let (classes, task_reason) = task(&columns[target], labels, rows.len());
    if classes.is_some_and(|classes| classes < 2) {
        let target = display::name(&columns[target].name);
        return Err(Error::data(format!(
            "{}: in the rows without an empty cell, the target `{target}` has one class only",
            table.path
        ))
        .hint("fill the empty cells, or remove columns that have some"));
    }
    let left_out = |(_, c): (usize, &Column)| Some((c.name.clone(), c.useless.clone()?));
    Ok(CsvProposal {
        delimiter: char::from(table.delimiter),
        rows: rows.len(),
        target: columns[target].name.clone(),
        target_reason,
        classes,
        task_reason,
        features: used.iter().map(|i| (columns[*i].name.clone(), columns[*i].in_words())).collect(),
        left_out: others().filter_map(left_out).collect(),
        blanks,
        marks,
        passed_over,
    })
}

/// A line for each column that can't be used.
fn reasons(columns: &[Column]) -> String {
    let reason = |c: &Column| Some(format!("  `{}`: {}", display::name(&c.name), c.useless.as_ref()?));
    columns.iter().filter_map(reason).take(20).collect::<Vec<_>>().join("\n")
}

/// The names of columns, each with a reason.
pub(super) type Reasons = Vec<(String, String)>;

/// The column to predict: one that is called so, else the last; why, and the columns that are called so but can't be one. Where another
/// table lacks columns, it is one of them.
pub(super) fn target(
    header: &[String],
    columns: &[Column],
    beside: &Beside,
) -> Option<(usize, String, Reasons)> {
    let able = |i: &usize| columns[*i].useless.is_none();
    let lacks = |i: &usize| beside.lacking.contains(&header[*i]);
    let lacking = (0..columns.len()).filter(|i| able(i) && lacks(i)).count();
    let fits = |i: &usize| lacking == 0 || lacks(i);
    let reason = |why: &str| match lacking {
        0 => why.to_owned(),
        1 => format!("because {} lacks it", beside.lacks),
        _ => format!("{why} of those that {} lacks", beside.lacks),
    };
    let (mut passed_over, mut seen) = (Vec::new(), BTreeSet::new());
    // A name may be one of a target in both ways.
    for i in named(header).into_iter().flatten().filter(|i| fits(i) && seen.insert(*i)) {
        match &columns[i].useless {
            None => return Some((i, reason("by its name"), passed_over)),
            Some(why) => passed_over.push((columns[i].name.clone(), why.clone())),
        }
    }
    let last = (0..columns.len()).rfind(|i| able(i) && fits(i))?;
    let why = match last + 1 == columns.len() || lacking > 0 {
        true => "the last column",
        false => "the last column that can be one",
    };
    Some((last, reason(why), passed_over))
}

/// The number of classes, if the target is one, and why.
pub(super) fn task(target: &Column, labels: usize, rows: usize) -> (Option<usize>, String) {
    let values = target.values;
    // As training counts them: `1` and `1.0` are two labels.
    let numbered = if labels == values {
        String::new()
    } else {
        format!(" ({labels} labels in the rows that are used)")
    };
    match target.kind {
        CsvCellKind::Texts => (Some(labels), format!("the cells are texts, {labels} different ones")),
        CsvCellKind::WholeNumbers
            if values == 2 || values <= MAX_NUMBER_CLASSES && values * MIN_ROWS_PER_CLASS <= rows =>
        {
            (
                Some(labels),
                format!(
                    "whole numbers, {values} different ones{numbered}; \"regression\" if they measure something"
                ),
            )
        }
        CsvCellKind::WholeNumbers | CsvCellKind::Numbers => {
            (None, format!("numbers, {values} different ones"))
        }
    }
}

/// A value of the key for empty cells, and why it is proposed.
type Treatment = (&'static str, String);

/// The rows that are used, and what is done about empty cells.
fn blanks(table: &RawTable, target: usize, used: &[usize]) -> Result<(Vec<usize>, Option<Treatment>)> {
    let rows = table.rows.len();
    let lacks = |r: usize, columns: &[usize]| columns.iter().any(|c| table.is_blank(r, *c));
    let without_target = (0..rows).filter(|r| lacks(*r, &[target])).count();
    let whole: Vec<usize> = (0..rows).filter(|r| !lacks(*r, &[used, &[target]].concat())).collect();
    let without_any = rows - whole.len();
    if without_any == 0 {
        return Ok((whole, None));
    }
    if without_target == 0 {
        let why = format!("{without_any} of {rows} rows have an empty cell; \"drop\" leaves them out");
        return Ok(((0..rows).collect(), Some(("mean", why))));
    }
    let left = whole.len();
    if left < MIN_ROWS {
        let name = display::name(&table.header[target]);
        let why = format!(
            "{}: the target `{name}` is empty in {without_target} rows, and {left} rows have no empty cell",
            table.path
        );
        return Err(Error::data(why).hint("fill the target, or remove columns with empty cells"));
    }
    let why = format!(
        "{without_target} rows lack the target; with other empty cells, {without_any} of {rows} rows are left out"
    );
    Ok((whole, Some(("drop", why))))
}

#[cfg(test)]
#[path = "csv_proposal_tests.rs"]
mod tests;
