//! What is computed from the columns of a table: its digest, the labels of a column, mean and standard deviation.

use super::csv_table::{CategoryIndex, RawTable};
use crate::Content;
use crate::fingerprint::digest_of_parts;
use crate::split::Subset;
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

/// The mean, if there are values. Differences from one of them are exact where sums of large values are rounded.
pub(super) fn mean(mut values: impl Iterator<Item = f64>) -> Option<f64> {
    let first = values.next()?;
    let (sum, count) = values.fold((0.0, 1usize), |(sum, n), x| (sum + (x - first), n + 1));
    Some(first + sum / count as f64)
}

/// What the values of a column are scaled by. All of it is computed in f64: f32 would merge values that differ little, such as
/// times, before they are scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
}

impl Scale {
    pub const NONE: Self = Self { mean: 0.0, std: 1.0 };

    /// Scales to mean 0 and standard deviation 1 over the training rows. A constant column becomes 0.
    pub fn new(values: &[f64], train: &Subset) -> Self {
        let rows = || (0..train.len()).map(|i| values[train.get(i)]);
        let mean = mean(rows()).unwrap_or(0.0);
        let n = train.len().max(1) as f64;
        let std = (rows().map(|x| (x - mean).powi(2)).sum::<f64>() / n).sqrt();
        // Values that differ by rounding alone are equal.
        Self { mean, std: if std > f64::EPSILON * mean.abs() { std } else { 1.0 } }
    }

    /// The scaled value, rounded to f32 at the end.
    pub fn apply(self, x: f64) -> f32 {
        ((x - self.mean) * (1.0 / self.std)) as f32
    }
}

/// Different numbers of a column that are equal as inputs.
#[derive(Debug, PartialEq)]
pub(super) struct Merged {
    /// Different numbers.
    pub before: usize,
    /// Different inputs.
    pub after: usize,
    /// Two of the numbers that are equal as inputs.
    pub two: [f64; 2],
}

/// Whether rounding to f32 loses much of a column: some whole numbers that are not `scaled`, or most of the different numbers. Decimals
/// in great number always lose some.
pub(super) fn merged(mut values: Vec<f64>, scale: Scale, scaled: bool) -> Option<Merged> {
    values.sort_unstable_by(f64::total_cmp);
    let (mut before, mut after, mut two, mut whole) = (1, 1, None, false);
    for pair in values.windows(2).filter(|pair| pair[0] != pair[1]) {
        before += 1;
        if scale.apply(pair[0]) == scale.apply(pair[1]) {
            two.get_or_insert([pair[0], pair[1]]);
            whole |= pair.iter().all(|x| x.fract() == 0.0);
        } else {
            after += 1;
        }
    }
    let much = after * 2 < before || whole && !scaled;
    two.filter(|_| much).map(|two| Merged { before, after, two })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaled(values: &[f64]) -> (Scale, Vec<f32>) {
        let scale = Scale::new(values, &Subset::all(values.len()));
        (scale, values.iter().map(|x| scale.apply(*x)).collect())
    }

    #[test]
    fn large_numbers_are_scaled_before_they_are_rounded() {
        let start = 1.7e12;
        let times: Vec<f64> = (0..60).map(|i| start + f64::from(i) * 1000.0).collect();
        let (scale, found) = scaled(&times);
        assert_eq!((scale.mean, scale.std), (start + 29_500.0, (1e6 * (3600.0 - 1.0) / 12.0_f64).sqrt()));
        let expected: Vec<f32> =
            (0..60).map(|i| ((f64::from(i) * 1000.0 - 29_500.0) / scale.std) as f32).collect();
        assert_eq!(found, expected);
        for constant in [0.1, 1.7e18, 0.0, -3.3] {
            assert_eq!(scaled(&[constant; 3]).1, [0.0; 3], "{constant}");
        }
        assert!(scaled(&[0.3, 0.1 + 0.2, 0.3]).1.iter().all(|x| x.abs() < 1e-15), "a difference of rounding");
    }

    #[test]
    fn merged_numbers_are_found() {
        let dates: Vec<f64> = (0..360).map(|day| f64::from(20_240_101 + day % 30 + day / 30 * 100)).collect();
        let found = merged(dates.clone(), Scale::NONE, false).unwrap();
        assert_eq!((found.before, found.two[0]), (360, 20_240_103.0));
        assert!(found.after < 200, "{found:?}");
        let scale = scaled(&dates).0;
        assert_eq!(merged(dates, scale, true), None);
        // One cell far from the others takes all of the range.
        let mut times: Vec<f64> = (0..100).map(|i| 1.7e12 + f64::from(i)).collect();
        times.push(0.0);
        let scale = scaled(&times).0;
        assert!(merged(times, scale, true).is_some());
        // Decimals, of which only some are merged.
        let decimals: Vec<f64> = (0..100_000).map(|i| (f64::from(i) * 0.618_033_988_749).fract()).collect();
        assert_eq!(merged(decimals, Scale::NONE, false), None);
        assert_eq!(merged(vec![0.1, 0.1, 5.0], Scale::NONE, false), None);
    }
}
