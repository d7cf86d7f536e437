//! Maps values to positions along an axis, and chooses its tick marks.

use super::Axis;
use base::numbers::{exponent, power};

/// With more labels a logarithmic axis becomes illegible: they overlap.
const MAX_LABELS: usize = 8;

/// A range of values and its position in the drawing.
pub struct Scale {
    low: f64,
    high: f64,
    log: bool,
    from: f64,
    to: f64,
}

/// A tick mark of an axis.
pub struct Tick {
    pub at: f64,
    pub text: String,
    /// A power of ten on a logarithmic axis; any tick of a linear one.
    pub strong: bool,
}

impl Scale {
    /// For the x axis: the range of the values, with a small margin if logarithmic.
    pub fn along(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = range(values);
        let (low, high) = match axis.log {
            false if low == high => (low - 0.5, high + 0.5),
            false => (low, high),
            true => {
                let air = if low == high { 2.0 } else { (high / low).powf(0.03) };
                (low / air, high * air)
            }
        };
        Self { low, high, log: axis.log, from, to }
    }

    /// For the y axis: with a margin. A logarithmic axis ends at round values; a linear one starts at zero if the
    /// values are close to it, as for a learning rate, or all the same.
    pub fn upwards(axis: &Axis, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) = range(values);
        let (low, high) = if axis.log {
            (round_below(low / 1.1), -round_below(-high * 1.1))
        } else {
            let (low, high) = with_zero_if_flat(low, high);
            let span = high - low;
            let near_zero = low >= 0.0 && low < 0.35 * span;
            let below_zero = high <= 0.0 && -high < 0.35 * span;
            (
                if near_zero { 0.0 } else { low - 0.06 * span },
                if below_zero { 0.0 } else { high + 0.06 * span },
            )
        };
        Self { low, high, log: axis.log, from, to }
    }

    pub fn at(&self, value: f64) -> f64 {
        let of = |value: f64| if self.log { value.ln() } else { value };
        self.from + (of(value) - of(self.low)) / (of(self.high) - of(self.low)) * (self.to - self.from)
    }

    fn tick(&self, axis: &Axis, value: f64, strong: bool) -> Tick {
        Tick { at: self.at(value), text: (axis.tick)(value, self.high - self.low), strong }
    }

    /// Ticks of the x axis (steps): whole numbers. On a logarithmic axis, those of `values` (ascending) whose
    /// labels do not overlap, including the largest.
    pub fn steps(&self, axis: &Axis, values: &[f64]) -> Vec<Tick> {
        if !self.log {
            let step = whole_step((self.high - self.low) / 6.0);
            let whole = multiples(step, self.low, self.high).into_iter();
            return whole.map(|value| self.tick(axis, value, true)).collect();
        }
        let apart = (self.to - self.from) / MAX_LABELS as f64;
        let mut out: Vec<Tick> = Vec::new();
        for value in values.iter().rev() {
            if out.last().is_none_or(|last| last.at - self.at(*value) >= apart) {
                out.push(self.tick(axis, *value, true));
            }
        }
        out
    }

    /// Ticks of the y axis: round values. On a logarithmic axis, values between decades have labels only if there are
    /// few decades.
    pub fn levels(&self, axis: &Axis) -> Vec<Tick> {
        if !self.log {
            let round = ticks(self.low, self.high, 5).into_iter();
            return round.map(|value| self.tick(axis, value, true)).collect();
        }
        let few = (self.high / self.low).log10() < 2.5;
        let tick = |(value, strong)| {
            let tick = self.tick(axis, value, strong);
            if strong || few { tick } else { Tick { text: String::new(), ..tick } }
        };
        decades(self.low, self.high).into_iter().map(tick).collect()
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// The range of values that are all the same begins or ends at zero; that of zeros is 0 to 1.
fn with_zero_if_flat(low: f64, high: f64) -> (f64, f64) {
    // The mean of equal values differs from them by rounding.
    let flat = high - low <= 1e-9 * high.abs().max(low.abs());
    match flat {
        false => (low, high),
        true if low == 0.0 && high == 0.0 => (0.0, 1.0),
        true => (low.min(0.0), high.max(0.0)),
    }
}

/// About `count` round numbers from `low` to `high`.
fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    multiples(round_step((high - low) / count as f64, &[1.0, 2.0, 2.5, 5.0, 10.0]), low, high)
}

/// The smallest of these multiples of a power of ten that is not below `rough`.
fn round_step(rough: f64, multiples: &[f64]) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    multiples.iter().map(|m| m * power).find(|s| *s >= rough).unwrap_or(rough)
}

/// The same as a whole number.
fn whole_step(rough: f64) -> f64 {
    round_step(rough.max(1.0), &[1.0, 2.0, 5.0, 10.0])
}

/// The multiples of `step` from `low` to `high`, at most 20.
fn multiples(step: f64, low: f64, high: f64) -> Vec<f64> {
    if !step.is_finite() || step <= 0.0 {
        return vec![low];
    }
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|t| *t <= high + step * 1e-9).take(20).collect()
}

/// 1, 2 and 5 times each power of ten in the range; true for the powers themselves.
fn decades(low: f64, high: f64) -> Vec<(f64, bool)> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|n| [1.0, 2.0, 5.0].map(|m| (m * 10f64.powi(n), m == 1.0)))
        .filter(|(v, _)| *v >= low * 0.999_999 && *v <= high * 1.000_001)
        .collect()
}

/// The largest of 1, 2, 5 x 10^n that is not above `value`; for a negative value, minus the smallest that is not below
/// its magnitude.
fn round_below(value: f64) -> f64 {
    let size = value.abs();
    let decade = 10f64.powf(size.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    if value < 0.0 {
        return -steps.into_iter().find(|s| *s >= size * 0.999_999).unwrap_or(size);
    }
    steps.into_iter().rev().find(|s| *s <= size * 1.000_001).unwrap_or(size)
}

/// A tick's text, with the digits needed for ticks `span` apart.
pub fn label(value: f64, span: f64) -> String {
    let size = value.abs().max(span);
    let digits = |unit: f64| (2 - (span / unit).log10().floor() as i32).clamp(0, 6) as usize;
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 1e9 && span >= 1e5 {
        power(value, digits(10f64.powf(size.log10().floor())))
    } else if size >= 1e6 && span >= 1e5 {
        format!("{}M", trimmed(value / 1e6, digits(1e6)))
    } else if size >= 1e4 && span >= 1e3 {
        format!("{}k", trimmed(value / 1e3, digits(1e3)))
    } else if size < 1e-3 {
        exponent(value)
    } else {
        trimmed(value, digits(1.0))
    }
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 9.0, 6), [0.0, 2.0, 4.0, 6.0, 8.0]);
        // Steps are whole: no 2.5, and none between two steps.
        for (low, high) in [(1.0, 12.0), (0.5, 1.5), (1.0, 3.0), (7.0, 7.5), (1.0, 12_500.0), (0.0, 1e9)] {
            let all = multiples(whole_step((high - low) / 6.0), low, high);
            assert!(!all.is_empty() && all.iter().all(|step| step.fract() == 0.0), "{all:?}");
        }
        assert_eq!(multiples(whole_step(11.0 / 6.0), 1.0, 12.0), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(multiples(whole_step(14.0 / 6.0), 1.0, 15.0), [5.0, 10.0, 15.0]);
        for (low, high) in [(0.0, 5e-4), (2.1, 2.2), (-3.0, 1e7), (0.0, 1e-300), (f64::NAN, 1.0)] {
            assert!(ticks(low, high, 5).len() <= 20, "{low} {high}");
        }
        let values: Vec<f64> = decades(0.5, 20.0).into_iter().map(|t| t.0).collect();
        assert_eq!(values, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!((round_below(0.7), round_below(30.0), round_below(1.0)), (0.5, 20.0, 1.0));
        assert_eq!((round_below(-0.7), round_below(-30.0), round_below(-5.0)), (-1.0, -50.0, -5.0));
    }

    #[test]
    fn the_axis_of_a_constant_has_its_size() {
        let axis = Axis { log: false, unit: "", tick: label, text: |v| v.to_string() };
        let ends = |values: &[f64]| {
            let scale = Scale::upwards(&axis, values.iter().copied(), 200.0, 0.0);
            let texts: Vec<String> = scale.levels(&axis).into_iter().map(|tick| tick.text).collect();
            (scale.low, scale.high, texts.join(" "))
        };
        let is = |value: f64, low: f64, high: f64, texts: &str| {
            let found = ends(&[value, value]);
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-12 * b.abs();
            assert!(close(found.0, low) && close(found.1, high) && found.2 == texts, "{value}: {found:?}");
        };
        is(0.001, 0.0, 0.00106, "0 0.00025 0.0005 0.00075 0.001");
        is(3.0, 0.0, 3.18, "0 1 2 3");
        is(5e4, 0.0, 5.3e4, "0 20k 40k");
        is(-2.0, -2.12, 0.0, "-2 -1.5 -1 -0.5 0");
        is(0.0, 0.0, 1.06, "0 0.25 0.5 0.75 1");
        // Of values that are not the same, the range is theirs.
        assert!(ends(&[3.0, 3.1]).0 > 2.9);
    }

    #[test]
    fn labels_are_short() {
        for (value, span, text) in [
            (0.2, 1.0, "0.2"),
            (15000.0, 2e4, "15k"),
            (50012.0, 10.0, "50012"),
            (1_250_000.0, 2e6, "1.25M"),
            (1_002_500.0, 5e3, "1002.5k"),
            (5e-4, 5e-4, "5e-4"),
            (2.15, 0.1, "2.15"),
            (0.0, 1.0, "0"),
            // As in `report.js`.
            (9.5e8, 9.5e8, "950M"),
            (5e8, 2e9, "5e8"),
            (1.5e9, 2e9, "1.5e9"),
            (5.568e34, 6e34, "5.57e34"),
            (-2e34, 6e34, "-2e34"),
            (1.000_001e12, 1e6, "1.000001e12"),
            (1_000_000_012.0, 10.0, "1000000012"),
        ] {
            assert_eq!(label(value, span), text);
        }
    }
}
