//! Line charts as SVG, for the report page and for separate files. Colours and strokes are in [`STYLE`].

mod points;
mod scale;

use super::report::escape;
pub use points::smoothed;
use points::thinned;
use scale::Scale;
pub use scale::label;
use std::fmt::Write;

/// The style sheet that charts need on their page.
pub const STYLE: &str = include_str!("chart/chart.css");

/// Size of the page's charts, in SVG units; the page scales them.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
/// Margins for labels.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 36.0;

/// Half the width of a layer that has one point.
const BAR: f64 = 14.0;

/// Number of colours in the style sheet.
pub(crate) const COLOURS: usize = 8;

type Point = (f64, f64);

/// Line style.
#[derive(Clone, Copy)]
pub enum Look {
    /// Solid, in the colour with this number.
    Line(usize),
    /// As `Line`, with a marker at each point and the value as its tooltip.
    Marked(usize),
    /// Pale, in the background.
    Faint,
    /// Dashed, in the style with this number: a reference line.
    Limit(usize),
    /// Filled down to the axis, in the colour with this number. Later layers cover earlier ones.
    Layer(usize),
}

/// A sign at the x axis, with a text that is shown when the pointer is on it.
pub struct Rule {
    /// On the x axis.
    pub x: f64,
    /// In the style sheet.
    pub class: &'static str,
    /// An SVG path around the origin.
    pub(crate) glyph: &'static str,
    /// Whether a line through the chart belongs to it.
    pub through: bool,
    /// The tooltip.
    pub text: String,
}

/// A named line.
pub struct Series {
    name: String,
    points: Vec<Point>,
    look: Look,
}

impl Series {
    /// `points`: x and y, in the order in which they are joined.
    pub fn new(name: impl Into<String>, look: Look, points: Vec<Point>) -> Self {
        Self { name: name.into(), points, look }
    }

    fn class(&self) -> String {
        match self.look {
            Look::Line(number) | Look::Marked(number) => format!("line {}", colour(number)),
            Look::Faint => "faint".to_owned(),
            Look::Limit(number) => format!("limit l{number}"),
            Look::Layer(number) => format!("layer s{}", number % COLOURS),
        }
    }

    /// Draws the series' legend entry to the right of `(x, y)`.
    pub fn key(&self, out: &mut String, x: f64, y: f64) {
        let _ = write!(out, "<path class=\"{}\" d=\"{}\"/>", self.class(), path(&[(x, y), (x + 34.0, y)]));
        if let Look::Marked(number) = self.look {
            marker(out, number, (x + 17.0, y), &self.name);
        }
        let _ = writeln!(
            out,
            "<text class=\"key\" x=\"{}\" y=\"{}\">{}</text>",
            x + 42.0,
            y + 4.0,
            escape(&self.name)
        );
    }
}

/// How an axis maps and formats values.
#[derive(Clone, Copy)]
pub struct Axis {
    /// Logarithmic; values that are not positive are left out.
    pub log: bool,
    /// Unit, shown at the end of the axis.
    pub unit: &'static str,
    /// Formats a tick's value, given the span of the axis.
    pub tick: fn(f64, f64) -> String,
    /// Formats a point's value in full.
    pub text: fn(f64) -> String,
}

impl Axis {
    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.log || value > 0.0)
    }
}

/// A titled chart. Points that an axis can't show (not finite, or not positive on a logarithmic axis) are left out, and
/// so are series without points.
pub struct Chart<'a> {
    title: &'a str,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
    rules: Vec<Rule>,
}

impl<'a> Chart<'a> {
    /// `title` is above the chart; of `series`, later ones are drawn over earlier ones.
    pub fn new(title: &'a str, x: Axis, y: Axis, series: Vec<Series>) -> Self {
        let shown = |mut s: Series| {
            s.points.retain(|p| x.shows(p.0) && y.shows(p.1));
            Series { points: thinned(s.points), ..s }
        };
        let series = series.into_iter().map(shown).filter(|s| !s.points.is_empty()).collect();
        Self { title, x, y, series, rules: Vec::new() }
    }

    /// With rules; those outside of the series' range are left out.
    pub(crate) fn with_rules(self, rules: Vec<Rule>) -> Self {
        Self { rules, ..self }
    }

    /// Writes the chart as a `<figure>` of the page.
    pub(crate) fn figure(&self, out: &mut String) {
        if self.series.is_empty() {
            return;
        }
        let title = escape(self.title);
        let _ = write!(out, "<figure class=\"chart\"><figcaption><span class=\"title\">{title}</span>");
        for s in self.series.iter().filter(|_| self.series.len() > 1) {
            let _ = write!(out, "<span class=\"key {}\">{}</span>", s.class(), escape(&s.name));
        }
        let _ = write!(
            out,
            "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
        );
        self.plot(out, WIDTH, HEIGHT);
        out.push_str("</svg></figure>");
    }

    /// Writes the chart as a titled card of a drawing, at `(left, top)`.
    pub fn card(&self, out: &mut String, [left, top, width, height]: [f64; 4]) {
        let _ = writeln!(
            out,
            "<g transform=\"translate({left} {top})\"><rect class=\"card\" width=\"{width}\" height=\"{height}\" rx=\"10\"/>\
             <text class=\"head\" x=\"16\" y=\"26\">{}</text><g transform=\"translate(0 32)\">",
            escape(self.title)
        );
        self.plot(out, width, height - 32.0);
        out.push_str("</g></g>\n");
    }

    /// Draws axes and lines in an area of this size.
    fn plot(&self, out: &mut String, width: f64, height: f64) {
        let all = || self.series.iter().flat_map(|s| &s.points);
        if all().next().is_none() {
            return;
        }
        let x = Scale::along(&self.x, all().map(|p| p.0), LEFT, width - RIGHT);
        let y = Scale::upwards(&self.y, all().map(|p| p.1), height - BOTTOM, TOP);
        self.axes(out, &x, &y, [width - RIGHT, height - BOTTOM]);
        for s in &self.series {
            let mut places: Vec<Point> = s.points.iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
            if let (Look::Layer(_), [(x, y)]) = (s.look, &places[..]) {
                // A layer over one point would be invisible.
                places = vec![(x - BAR, *y), (x + BAR, *y)];
            }
            let mut line = path(&places);
            if let (Look::Layer(_), Some(first), Some(last)) = (s.look, places.first(), places.last()) {
                let base = height - BOTTOM;
                let _ = write!(line, "L{:.1} {base:.1}L{:.1} {base:.1}Z", last.0, first.0);
            }
            let _ = writeln!(out, "<path class=\"{}\" d=\"{line}\"/>", s.class());
            let number = match s.look {
                Look::Marked(number) => number,
                // A line with one point would be invisible.
                Look::Line(number) if places.len() == 1 => number,
                _ => continue,
            };
            for (point, place) in s.points.iter().zip(places) {
                let (x, y) = ((self.x.text)(point.0), (self.y.text)(point.1));
                marker(out, number, place, &format!("{}, {x}: {y}", s.name));
            }
        }
        self.signs(out, &x, height - BOTTOM);
    }

    /// Draws the rules of a chart whose x axis is at `base`.
    fn signs(&self, out: &mut String, scale: &Scale, base: f64) {
        let inside = |rule: &&Rule| (LEFT - 0.1..WIDTH - RIGHT + 0.1).contains(&scale.at(rule.x));
        for rule in self.rules.iter().filter(inside) {
            let (x, class) = (scale.at(rule.x), rule.class);
            if rule.through {
                let _ = write!(
                    out,
                    "<line class=\"rule {class}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{base}\"/>"
                );
            }
            let _ = writeln!(
                out,
                "<path class=\"mark {class}\" transform=\"translate({x:.1} {base})\" d=\"{}\"><title>{}</title></path>",
                rule.glyph,
                escape(&rule.text)
            );
        }
    }

    fn axes(&self, out: &mut String, x: &Scale, y: &Scale, [right, base]: [f64; 2]) {
        for tick in y.levels(&self.y) {
            let class = if tick.strong { "grid" } else { "fine" };
            let _ = write!(
                out,
                "<line class=\"{class}\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>",
                tick.at
            );
            if !tick.text.is_empty() {
                let (x, y, text) = (LEFT - 8.0, tick.at + 4.0, tick.text);
                let _ = write!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
            }
        }
        let mut values: Vec<f64> = self.series.iter().flat_map(|s| &s.points).map(|p| p.0).collect();
        values.sort_unstable_by(f64::total_cmp);
        for tick in x.steps(&self.x, &values) {
            let _ = write!(
                out,
                "<line class=\"axis\" x1=\"{0:.1}\" x2=\"{0:.1}\" y1=\"{base}\" y2=\"{1}\"/>\
                 <text x=\"{0:.1}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
                tick.at,
                base + 4.0,
                base + 17.0,
                tick.text
            );
        }
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right:.1}\" y1=\"{base}\" y2=\"{base}\"/>\
             <text x=\"{right:.1}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            base + 31.0,
            self.x.unit
        );
    }
}

/// The class of the colour with this number; lines beyond the number of colours are dashed.
pub fn colour(number: usize) -> String {
    let dashed = if is_dashed(number) { " dashed" } else { "" };
    format!("s{}{dashed}", number % COLOURS)
}

/// Whether a line of the colour with this number is dashed.
pub(crate) fn is_dashed(number: usize) -> bool {
    number / COLOURS % 2 == 1
}

/// An SVG path through the points.
fn path(points: &[Point]) -> String {
    points.iter().enumerate().fold(String::new(), |mut text, (i, (x, y))| {
        let _ = write!(text, "{}{x:.1} {y:.1}", if i == 0 { "M" } else { "L" });
        text
    })
}

/// Circle, square, diamond or triangle; together with the colours, 32 combinations.
fn marker(out: &mut String, number: usize, (x, y): Point, tip: &str) {
    let shapes = [
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
        "M-3.6 -3.6h7.2v7.2h-7.2z",
        "M0 -5L5 0L0 5L-5 0z",
        "M0 -4.8L4.6 3.4L-4.6 3.4z",
    ];
    let shape = shapes[(number + number / COLOURS) % shapes.len()];
    let _ = writeln!(
        out,
        "<path class=\"m m{}\" transform=\"translate({x:.1} {y:.1})\" d=\"{shape}\"><title>{}</title></path>",
        number % COLOURS,
        escape(tip)
    );
}

#[cfg(test)]
mod tests;
