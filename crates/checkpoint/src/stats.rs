//! Statistics of a tensor, and text tables, for `inspect`.

use serde::Serialize;

use super::tensor::TensorData;
use base::display;
use unicode_width::UnicodeWidthStr;

/// Over the finite values; `std` is the population's. All `None` if no value is finite.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Stats {
    pub mean: Option<f64>,
    pub std: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    /// Number of NaN and infinite values.
    pub non_finite: usize,
}

impl Stats {
    pub fn new(tensor: &TensorData) -> Self {
        let (mut n, mut sum, mut min, mut max) = (0usize, 0.0, f64::INFINITY, f64::NEG_INFINITY);
        let mut non_finite = 0;
        tensor.for_each_f64(|v| match v.is_finite() {
            true => {
                (n, sum, min, max) = (n + 1, sum + v, min.min(v), max.max(v));
            }
            false => non_finite += 1,
        });
        if n == 0 {
            return Self { non_finite, ..Self::default() };
        }
        let mean = sum / n as f64;
        // A second pass: a sum of squares loses all digits if the mean is large, as in running variances.
        let mut squares = 0.0;
        tensor.for_each_f64(|v| {
            if v.is_finite() {
                squares += (v - mean) * (v - mean);
            }
        });
        let std = (squares / n as f64).sqrt();
        Self { mean: Some(mean), std: Some(std), min: Some(min), max: Some(max), non_finite }
    }
}

/// Aligned columns: text to the left, numbers (the columns in `right`) to the right, separated by two spaces.
pub fn table(rows: &[Vec<String>], right: &[usize]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| display::piece(cell)).collect()).collect();
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| s.width()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in &rows {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(c, s)| {
                // Padded by hand: the width of a format is limited to 65,535.
                let pad = " ".repeat(widths[c] - s.width());
                if right.contains(&c) { pad + s } else { s.clone() + &pad }
            })
            .collect();
        out.push_str(cells.join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// Four significant digits, or `-`.
pub fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(0.0) => "0".into(),
        Some(v) if (1e-3..1e6).contains(&v.abs()) => {
            let digits = (3 - v.abs().log10().floor() as i32).clamp(0, 6) as usize;
            format!("{v:.digits$}")
        }
        Some(v) => format!("{v:.3e}"),
    }
}

/// `44.7 MB`: powers of 1000, as in `ls -h --si`.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_values_are_counted_and_left_out_of_the_rest() {
        let t = TensorData::from_f32("w", vec![4], &[1.0, 3.0, f32::NAN, f32::NEG_INFINITY]).unwrap();
        let expected =
            Stats { mean: Some(2.0), std: Some(1.0), min: Some(1.0), max: Some(3.0), non_finite: 2 };
        assert_eq!(Stats::new(&t), expected);
        assert_eq!(Stats::new(&TensorData::from_f32("e", vec![0], &[]).unwrap()), Stats::default());
    }

    #[test]
    fn numbers_and_sizes_are_short() {
        let cases = [(0.0, "0"), (1.0, "1.000"), (-12.34567, "-12.35"), (1e-5, "1.000e-5"), (5e5, "500000")];
        for (v, text) in cases {
            assert_eq!(number(Some(v)), text);
        }
        assert_eq!(
            (number(None), size(999), size(44_700_000)),
            ("-".into(), "999 B".into(), "44.7 MB".into())
        );
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "10".into()], vec!["bbb".into(), "5".into()]];
        assert_eq!(table(&rows, &[1]), "a    10\nbbb   5\n");
    }
}
