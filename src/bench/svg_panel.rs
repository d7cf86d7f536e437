//! One chart with logarithmic axes.

use super::units;
use std::fmt::Write;

pub const HEIGHT: f64 = 380.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 22.0;
const HEAD: f64 = 46.0;
const FOOT: f64 = 36.0;
/// More labels on the axis of sizes run into each other.
const MAX_LABELS: usize = 8;

/// A range of values on a logarithmic axis, and where it lies.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        self.from + (value.ln() - self.low.ln()) / (self.high.ln() - self.low.ln()) * (self.to - self.from)
    }
}

pub struct Panel {
    left: f64,
    top: f64,
    width: f64,
    x: Scale,
    y: Scale,
    /// The sizes that have points, ascending.
    sizes: Vec<f64>,
}

impl Panel {
    /// None without a point; all of them are [`shown`].
    pub fn new(left: f64, top: f64, width: f64, points: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let points: Vec<(f64, f64)> = points.collect();
        let range = |of: fn(&(f64, f64)) -> f64| {
            let range = (f64::INFINITY, f64::NEG_INFINITY);
            points.iter().map(of).fold(range, |(low, high), v| (low.min(v), high.max(v)))
        };
        let mut sizes: Vec<f64> = points.iter().map(|p| p.0).collect();
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.dedup();
        let ((x0, x1), (y0, y1)) = (range(|p| p.0), range(|p| p.1));
        let air = if x0 == x1 { 2.0 } else { (x1 / x0).powf(0.03) };
        // From a round value to a round value, with a little air.
        let (low, high) = (round_below(y0 / 1.1), -round_below(-y1 * 1.1));
        let x = Scale { low: x0 / air, high: x1 * air, from: left + LEFT, to: left + width - RIGHT };
        let y = Scale { low, high, from: top + HEIGHT - FOOT, to: top + HEAD };
        (!points.is_empty()).then_some(Self { left, top, width, x, y, sizes })
    }

    pub fn at(&self, x: f64, y: f64) -> (f64, f64) {
        (self.x.at(x), self.y.at(y))
    }

    /// Card, title, axes.
    pub fn frame(&self, out: &mut String, title: &str, label: fn(f64) -> String) {
        let Self { left, top, width, .. } = self;
        let _ = writeln!(
            out,
            "<rect class=\"card\" x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{HEIGHT}\" rx=\"10\"/>\
             <text class=\"head\" x=\"{}\" y=\"{}\">{title}</text>",
            left + 16.0,
            top + 26.0
        );
        let (from, to) = (self.x.from, self.x.to);
        let decades = (self.y.high / self.y.low).log10();
        for (value, whole) in ticks(self.y.low, self.y.high) {
            let y = self.y.at(value);
            let class = if whole { "grid" } else { "fine" };
            let _ = write!(
                out,
                "<line class=\"{class}\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>"
            );
            if whole || decades < 2.5 {
                let label = label(value);
                let _ = write!(
                    out,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                    from - 8.0,
                    y + 4.0
                );
            }
        }
        let base = self.y.from;
        let _ =
            write!(out, "<line class=\"axis\" x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{base}\" y2=\"{base}\"/>");
        for size in self.labelled() {
            let (x, text) = (self.x.at(size), units::size(size as usize));
            let _ = write!(
                out,
                "<line class=\"axis\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{base}\" y2=\"{}\"/>\
                 <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                base + 4.0,
                base + 19.0
            );
        }
        out.push('\n');
    }

    pub fn line(&self, out: &mut String, class: &str, points: &[(f64, f64)]) {
        let points: Vec<(f64, f64)> = points.iter().map(|p| self.at(p.0, p.1)).collect();
        if !points.is_empty() {
            let _ = writeln!(out, "<path class=\"{class}\" d=\"{}\"/>", path(&points));
        }
    }

    /// Sizes whose labels stand clear of each other; the largest is one of them.
    fn labelled(&self) -> Vec<f64> {
        let apart = (self.x.to - self.x.from) / MAX_LABELS as f64;
        let mut out: Vec<f64> = Vec::new();
        for size in self.sizes.iter().rev() {
            if out.last().is_none_or(|last| self.x.at(*last) - self.x.at(*size) >= apart) {
                out.push(*size);
            }
        }
        out
    }
}

/// Whether a logarithmic axis can show it.
pub fn shown(point: &(f64, f64)) -> bool {
    point.0 > 0.0 && point.1 > 0.0 && point.1.is_finite()
}

/// A path through the points.
pub fn path(points: &[(f64, f64)]) -> String {
    points.iter().enumerate().fold(String::new(), |mut text, (i, (x, y))| {
        let _ = write!(text, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        text
    })
}

/// Of lines, in the style sheet.
pub const COLOURS: usize = 8;

/// Circle, square, diamond, triangle; with the colour, 32 different ones.
pub fn marker(out: &mut String, number: usize, x: f64, y: f64, tip: &str) {
    let shapes = [
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        "M-3.6 -3.6h7.2v7.2h-7.2z",
        "M0 -5L5 0L0 5L-5 0z",
        "M0 -4.8L4.6 3.4L-4.6 3.4z",
    ];
    let shape = shapes[(number + number / COLOURS) % shapes.len()];
    let _ = writeln!(
        out,
        "<path class=\"m m{}\" transform=\"translate({x:.1} {y:.1})\" d=\"{shape}\"><title>{tip}</title></path>",
        number % COLOURS
    );
}

/// The largest of 1, 2, 5 x 10^n that is not above `value`; of a negative value, minus the smallest not below.
fn round_below(value: f64) -> f64 {
    let size = value.abs();
    let decade = 10f64.powf(size.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|m| m * decade);
    if value < 0.0 {
        return -steps.into_iter().find(|s| *s >= size * 0.999_999).unwrap_or(size);
    }
    steps.into_iter().rev().find(|s| *s <= size * 1.000_001).unwrap_or(size)
}

/// 1, 2 and 5 of every decade within; true for the decades themselves.
fn ticks(low: f64, high: f64) -> Vec<(f64, bool)> {
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    (first..=last)
        .flat_map(|n| [1.0, 2.0, 5.0].map(|m| (m * 10f64.powi(n), m == 1.0)))
        .filter(|(v, _)| *v >= low * 0.999_999 && *v <= high * 1.000_001)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_the_round_values_within() {
        let values: Vec<f64> = ticks(0.5, 20.0).into_iter().map(|t| t.0).collect();
        assert_eq!(values, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
        assert_eq!((round_below(0.7), round_below(30.0), round_below(1.0)), (0.5, 20.0, 1.0));
        assert_eq!((round_below(-0.7), round_below(-30.0), round_below(-5.0)), (-1.0, -50.0, -5.0));
    }
}
