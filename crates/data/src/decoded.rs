//! Inputs as people know them: an encoding, backwards.

use super::{Blanks, ColumnEncoding, ColumnKind, TableEncoding};

/// In place of a cell that was empty, or that a transform changed.
const NONE: &str = "–";

/// The output in the target's own units, with no more digits than it is exact to: outputs are f32, and those of a scaled target come
/// from sums of numbers around 1.
pub fn in_units(output: f32, mean: f64, std: f64) -> f64 {
    unscaled(output, [mean, std], f64::from(output.abs().max(1.0)) * f64::from(f32::EPSILON) / 4.0)
}

/// The cell that was scaled and rounded to this input: the one with the fewest digits.
fn cell_of(input: f32, mean: f64, std: f64) -> f64 {
    let exact = f64::from(input.abs().max(0.5)) * f64::from(f32::EPSILON) / 2.0;
    let is_zero = (mean, std) != (0.0, 1.0) && (f64::from(input) + mean / std).abs() <= exact;
    if is_zero { 0.0 } else { unscaled(input, [mean, std], exact) }
}

/// The number with the fewest digits that is as close as `exact`, before it is scaled.
fn unscaled(scaled: f32, [mean, std]: [f64; 2], exact: f64) -> f64 {
    let value = f64::from(scaled) * std + mean;
    if (mean, std) == (0.0, 1.0) {
        return (value as f32).to_string().parse().unwrap_or(value);
    }
    let mut rounded = (0..17).map(|digits| format!("{value:.digits$e}").parse().unwrap_or(value));
    rounded.find(|short: &f64| (short - value).abs() <= exact * std.abs()).unwrap_or(value)
}

impl TableEncoding {
    /// The cells of a row, by their columns, of which there are as many inputs as [`TableEncoding::width`].
    pub(super) fn cells(&self, inputs: &[f32]) -> Vec<(String, String)> {
        let mut rest = inputs;
        let mut next = |ColumnEncoding { name, kind }: &ColumnEncoding| {
            let (own, behind) = rest.split_at(kind.width().min(rest.len()));
            rest = behind;
            (name.clone(), cell(kind, own, self.blanks))
        };
        self.columns.iter().map(&mut next).collect()
    }
}

fn cell(kind: &ColumnKind, inputs: &[f32], blanks: Blanks) -> String {
    match (kind, inputs) {
        (ColumnKind::Number { mean, std, fill }, [x])
            if blanks == Blanks::Mean && *x == ((fill - mean) / std) as f32 =>
        {
            // Four digits are enough of a number that is in no cell.
            let short: f64 = format!("{fill:.3e}").parse().unwrap_or(*fill);
            format!("{short} (the mean)")
        }
        (ColumnKind::Number { mean, std, .. }, [x]) if x.is_finite() => cell_of(*x, *mean, *std).to_string(),
        (ColumnKind::Category { categories, .. }, inputs) => {
            let chosen = inputs.iter().position(|x| *x == 1.0);
            let others = inputs.iter().filter(|x| **x != 0.0).count();
            chosen.filter(|_| others == 1).map_or(NONE.to_owned(), |at| categories[at].clone())
        }
        _ => NONE.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TargetEncoding;

    #[test]
    fn cells_are_those_of_the_table() {
        let number = |mean, std| ColumnKind::Number { mean, std, fill: mean };
        let kinds = [
            ("x", number(44.5555, 5.5)),
            ("kind", ColumnKind::Category { categories: vec!["a".into(), "b".into()], fill: vec![0.5, 0.5] }),
            ("year", number(0.0, 1.0)),
        ];
        let columns = kinds.map(|(name, kind)| ColumnEncoding { name: name.to_owned(), kind });
        let table = TableEncoding {
            delimiter: ',',
            columns: columns.into(),
            blanks: Blanks::Mean,
            blank_marks: Vec::new(),
            target: TargetEncoding::Number { name: "y".into(), mean: 0.0, std: 1.0 },
        };
        let cells = |inputs: &[f32]| {
            let cells = table.cells(inputs).into_iter().map(|(name, cell)| format!("{name} {cell}"));
            cells.collect::<Vec<_>>().join(", ")
        };
        let x = ((39.1 - 44.5555) / 5.5) as f32;
        assert_eq!(cells(&[x, 0.0, 1.0, 2007.0]), "x 39.1, kind b, year 2007");
        // An empty cell, and what a transform made of one.
        assert_eq!(cells(&[f32::NAN, 0.5, 0.5, -0.25]), "x –, kind –, year -0.25");
        assert_eq!(cells(&[x, 1.0, 0.5, 0.1]), "x 39.1, kind –, year 0.1");
        assert_eq!(cells(&[0.0, 0.0, 1.0, 2.0]), "x 44.56 (the mean), kind b, year 2");
    }

    #[test]
    fn a_cell_has_the_digits_of_the_table() {
        let (mean, std) = (1234.5678, 98.7654);
        for tenths in -5000..20_000 {
            let cell = f64::from(tenths) / 10.0;
            assert_eq!(cell_of(((cell - mean) / std) as f32, mean, std), cell);
        }
    }
}
