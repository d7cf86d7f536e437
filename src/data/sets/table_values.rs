//! What is computed from the columns of a table: its digest, the labels of a column, mean and standard deviation.

use super::csv_table::{CategoryIndex, RawTable};
use crate::data::Content;
use crate::data::fingerprint::digest_of_parts;
use crate::data::split::Part;
use std::collections::BTreeSet;

/// Digest of the columns in use, as written in the file.
pub(super) fn content<'a>(table: &RawTable, columns: impl Iterator<Item = &'a usize> + Clone) -> Content {
    let names = columns.clone().map(|&c| table.header[c].as_str());
    digest_of_parts(names.chain(table.rows.iter().flat_map(|row| columns.clone().map(move |&c| &row[c]))))
}

/// The labels of these rows: two spellings of a number are two.
pub(super) fn labels(
    table: &RawTable,
    column: usize,
    rows: impl IntoIterator<Item = usize>,
) -> BTreeSet<&str> {
    rows.into_iter().map(|row| &table.rows[row][column]).collect()
}

/// The labels in the column, sorted as numbers if all of them are numeric, otherwise as text.
pub(super) fn classes(table: &RawTable, column: usize) -> CategoryIndex {
    let names: BTreeSet<&str> = labels(table, column, 0..table.rows.len());
    let mut names: Vec<String> = names.into_iter().map(str::to_owned).collect();
    if names.iter().all(|n| n.parse::<f64>().is_ok()) {
        names.sort_by(|a, b| a.parse::<f64>().unwrap_or(0.0).total_cmp(&b.parse::<f64>().unwrap_or(0.0)));
    }
    names.into_iter().collect()
}

/// What the values of a column are scaled by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

impl Scale {
    pub const NONE: Self = Self { mean: 0.0, std: 1.0 };

    /// The scaled value. As `f32` without a scale.
    pub fn apply(self, x: f32) -> f32 {
        ((f64::from(x) - self.mean) * (1.0 / self.std)) as f32
    }
}

/// Mean 0 and standard deviation 1 over the training rows. A constant column becomes 0.
pub(super) fn standardise(values: &mut [f32], width: usize, place: usize, train: &Part) -> Scale {
    let n = train.len().max(1) as f64;
    let get = |i: usize| f64::from(values[train.get(i) * width + place]);
    let mean = (0..train.len()).map(get).sum::<f64>() / n;
    let variance = (0..train.len()).map(|i| (get(i) - mean).powi(2)).sum::<f64>() / n;
    let scale = Scale { mean, std: if variance > 0.0 { variance.sqrt() } else { 1.0 } };
    values.iter_mut().skip(place).step_by(width).for_each(|x| *x = scale.apply(*x));
    scale
}
