//! What the columns of a table become, as its training rows have it: means, deviations, categories and classes.

use super::csv_set::Targets;
use super::csv_table::{CategoryIndex, ColumnType, OTHER_MARKS, RawTable, plain_number, reads_as_number};
use super::table::{Blanks, TableKeys, Task};
use super::table_untrained::untrained_categories;
use super::table_values::{Merged, Scale, classes, mean, merged};
use crate::split::Subset;
use crate::{ColumnEncoding, ColumnKind, TargetEncoding};
use base::display;
use base::error::{Error, Result};

/// The columns of a table as inputs, and the target.
pub(super) struct Measured {
    pub columns: Vec<ColumnEncoding>,
    pub targets: Targets,
    /// What a user should know of a column.
    pub warnings: Vec<String>,
}

impl TableKeys {
    /// The feature columns of these types and the target.
    pub(super) fn measured(
        &self,
        table: &RawTable,
        columns: &[(usize, ColumnType)],
        target: usize,
        train: &Subset,
    ) -> Result<Measured> {
        let mut warnings = Vec::new();
        let targets = self.targets(table, target, train, &mut warnings)?;
        let mut column = |(at, kind): &(usize, ColumnType)| {
            let kind = match kind {
                ColumnType::Numbers => self.numbers(table, *at, train, &mut warnings),
                ColumnType::Categories(names) => {
                    warnings.extend(untrained_categories(table, *at, train));
                    self.categories(table, *at, names, train)
                }
            };
            ColumnEncoding { name: table.header[*at].clone(), kind }
        };
        Ok(Measured { columns: columns.iter().map(&mut column).collect(), targets, warnings })
    }

    fn numbers(
        &self,
        table: &RawTable,
        column: usize,
        train: &Subset,
        warnings: &mut Vec<String>,
    ) -> ColumnKind {
        let known = |row: usize| table.number(row, column).filter(|_| !table.is_blank(row, column));
        let cells: Vec<Option<f64>> = (0..table.rows.len()).map(known).collect();
        let fill = match self.blanks {
            Blanks::Mean => mean((0..train.len()).filter_map(|i| cells[train.get(i)])).unwrap_or(0.0),
            Blanks::Error | Blanks::Drop | Blanks::Zero => 0.0,
        };
        let values: Vec<f64> = cells.iter().map(|cell| cell.unwrap_or(fill)).collect();
        let scale = if self.standardise { Scale::new(&values, train) } else { Scale::NONE };
        let found = merged(cells.into_iter().flatten().collect(), scale, self.standardise);
        warnings.extend(
            found.map(|found| merged_warning(table, column, found, (self.standardise, "standardise"))),
        );
        ColumnKind::Number { mean: scale.mean, std: scale.std, fill }
    }

    /// A blank cell stands for as much of each category as the training rows have of it, or for none.
    fn categories(
        &self,
        table: &RawTable,
        column: usize,
        names: &CategoryIndex,
        train: &Subset,
    ) -> ColumnKind {
        let mut counts = vec![0usize; names.len()];
        if self.blanks == Blanks::Mean {
            let rows = (0..train.len()).map(|i| train.get(i)).filter(|row| !table.is_blank(*row, column));
            rows.filter_map(|row| names.index_of(&table.rows[row][column])).for_each(|at| counts[at] += 1);
        }
        let known = counts.iter().sum::<usize>().max(1) as f64;
        let fill = counts.into_iter().map(|count| count as f64 / known).collect();
        ColumnKind::Category { categories: names.names(), fill }
    }

    fn targets(
        &self,
        table: &RawTable,
        column: usize,
        train: &Subset,
        warnings: &mut Vec<String>,
    ) -> Result<Targets> {
        if self.task == Task::Classification {
            let names = match self.categories.get(&table.header[column]) {
                Some(_) => match table.column_type(column, &self.categories)? {
                    ColumnType::Categories(names) => names,
                    ColumnType::Numbers => CategoryIndex::default(),
                },
                None => classes(table, column),
            };
            let class = |r: usize| names.index_of(&table.rows[r][column]).unwrap_or(0) as i64;
            let labels: Vec<i64> = (0..table.rows.len()).map(class).collect();
            let names = self.class_names.clone().unwrap_or_else(|| names.names());
            warnings.extend(equal_target(table, column, train, "class", |row| labels[row]));
            return Ok(Targets::Classes { labels, names });
        }
        let numbers = target_numbers(table, column)?;
        warnings.extend(equal_target(table, column, train, "number", |row| numbers[row]));
        let scaled = self.standardise_target;
        let scale = if scaled { Scale::new(&numbers, train) } else { Scale::NONE };
        let values = numbers.iter().map(|x| scale.apply(*x)).collect();
        let found = merged(numbers, scale, scaled);
        warnings
            .extend(found.map(|found| merged_warning(table, column, found, (scaled, "standardise_target"))));
        Ok(Targets::Numbers { values, scale })
    }
}

/// The numbers of a target, which has no blank cells.
pub(super) fn target_numbers(table: &RawTable, column: usize) -> Result<Vec<f64>> {
    let number = |r: usize| match table.number(r, column) {
        Some(x) if (x as f32).is_finite() => Ok(x),
        Some(_) => Err(table.too_large(r, column)),
        None => {
            let (place, cell) = (table.location(r, column), &table.rows[r][column]);
            let hint = match cell {
                mark if OTHER_MARKS.contains(&mark) => {
                    "if it stands for a missing value, add it to `blank_marks`; `blanks = \"drop\"` drops its rows"
                }
                cell if reads_as_number(cell) => plain_number(cell),
                _ => "for text labels, set `[dataset] task = \"classification\"`",
            };
            Err(Error::data(format!("{place}: the target `{cell}` is not a number")).hint(hint))
        }
    };
    (0..table.rows.len()).map(number).collect()
}

/// A warning about a target that is the same in all training rows.
fn equal_target<T: PartialEq>(
    table: &RawTable,
    column: usize,
    train: &Subset,
    what: &str,
    of: impl Fn(usize) -> T,
) -> Option<String> {
    let mut rows = (0..train.len()).map(|i| train.get(i));
    let first = rows.next()?;
    let equal = train.len() > 1 && rows.all(|row| of(row) == of(first));
    let (header, cell) = (display::name(&table.header[column]), display::name(&table.rows[first][column]));
    equal.then(|| {
        format!(
            "the target `{header}` has one {what} in all training rows, `{cell}`: there is nothing to learn; `[dataset] target` \
             names another column"
        )
    })
}

/// The encoding of the target column `name`.
pub(super) fn target_encoding(name: &str, targets: &Targets) -> TargetEncoding {
    let name = name.to_owned();
    match targets {
        Targets::Numbers { scale: Scale { mean, std }, .. } => {
            TargetEncoding::Number { name, mean: *mean, std: *std }
        }
        Targets::Classes { names, .. } => TargetEncoding::Class { name, classes: names.clone() },
    }
}

/// A warning about numbers that are equal once they are rounded to f32.
fn merged_warning(table: &RawTable, column: usize, found: Merged, (scaled, key): (bool, &str)) -> String {
    let Merged { before, after, two: [one, other] } = found;
    let header = display::name(&table.header[column]);
    let what = format!(
        "column `{header}`: {before} different numbers become {after} when they are rounded to 32 bits, such as {one} and {other}"
    );
    match scaled {
        false => format!("{what}: `[dataset] {key} = true` scales them before"),
        true => format!(
            "{what}, because some cells are far from the others: if they stand for missing values, add them to `blank_marks`"
        ),
    }
}
