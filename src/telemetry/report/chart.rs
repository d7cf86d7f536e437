//! Line charts as inline SVG. Colours and strokes come from the page's style sheet.

use std::fmt::Write;

/// Drawing area in SVG units; the page scales it.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// More points than this on a line can't be told apart; they are averaged.
const MAX_POINTS: usize = 600;

/// One line.
pub(super) struct Series {
    name: &'static str,
    points: Vec<(f64, f64)>,
    faint: bool,
    dots: bool,
}

impl Series {
    pub fn line(name: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self { name, points, faint: false, dots: false }
    }
    /// In the background.
    pub fn faint(name: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self { name, points, faint: true, dots: false }
    }
    /// With a dot, and its value as a tooltip, at each point.
    pub fn dots(name: &'static str, points: Vec<(f64, f64)>) -> Self {
        Self { name, points, faint: false, dots: true }
    }
}

/// A titled chart. One without a single finite point is not drawn.
pub(super) struct Chart<'a> {
    title: &'a str,
    x_label: &'a str,
    series: Vec<Series>,
}

impl<'a> Chart<'a> {
    pub fn new(title: &'a str, x_label: &'a str, series: Vec<Series>) -> Self {
        let series = series
            .into_iter()
            .map(|mut s| {
                s.points.retain(|(x, y)| x.is_finite() && y.is_finite());
                Series { points: thinned(s.points), ..s }
            })
            .filter(|s| !s.points.is_empty())
            .collect();
        Self { title, x_label, series }
    }

    pub fn render(&self, out: &mut String) {
        if self.series.is_empty() {
            return;
        }
        let all = || self.series.iter().flat_map(|s| &s.points);
        let x = Scale::exact(all().map(|p| p.0), LEFT, WIDTH - RIGHT);
        let y = Scale::nice(all().map(|p| p.1), HEIGHT - BOTTOM, TOP);
        let title = super::escape(self.title);
        let _ = write!(out, "<figure><figcaption>{title}");
        if self.series.len() > 1 {
            for (i, s) in self.series.iter().enumerate() {
                let _ = write!(out, "<span class=\"key {}\">{}</span>", class(i, s), s.name);
            }
        }
        let _ = write!(
            out,
            "</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
        );
        self.axes(out, &x, &y);
        for (i, s) in self.series.iter().enumerate() {
            let class = class(i, s);
            let points: String = s.points.iter().fold(String::new(), |mut text, p| {
                let _ = write!(text, "{:.1},{:.1} ", x.at(p.0), y.at(p.1));
                text
            });
            let _ = write!(out, "<polyline class=\"{class}\" points=\"{}\"/>", points.trim_end());
            if s.dots && s.points.len() <= 60 || s.points.len() == 1 {
                for p in &s.points {
                    let _ = write!(
                        out,
                        "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\"><title>{} {}: {}</title></circle>",
                        x.at(p.0),
                        y.at(p.1),
                        self.x_label,
                        p.0,
                        super::significant(p.1)
                    );
                }
            }
        }
        out.push_str("</svg></figure>");
    }

    fn axes(&self, out: &mut String, x: &Scale, y: &Scale) {
        for tick in ticks(y.low, y.high, 5) {
            let at = y.at(tick);
            let _ = write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 8.0,
                at + 4.0,
                label(tick, y.high - y.low)
            );
        }
        let base = HEIGHT - BOTTOM;
        // Steps and epochs are whole numbers.
        for tick in ticks(x.low, x.high, 6).into_iter().filter(|t| t.fract() == 0.0) {
            let at = x.at(tick);
            let _ = write!(
                out,
                "<text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                base + 17.0,
                label(tick, x.high - x.low)
            );
        }
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{base}\" y2=\"{base}\"/>\
             <text class=\"unit\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT,
            base + 31.0,
            self.x_label
        );
    }
}

fn class(index: usize, series: &Series) -> String {
    if series.faint { "faint".to_owned() } else { format!("s{}", index % 2) }
}

/// Maps values to a range of the drawing.
struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// From the least to the largest value.
    fn exact(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (low, high) =
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
        Self { low, high, from, to }
    }

    /// With some air; down to zero where zero is near, as for a learning rate.
    fn nice(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.collect();
        let scale = Self::exact(values.iter().copied(), from, to);
        let flat = values.iter().all(|v| *v == values[0]);
        let span = if flat { scale.high.abs().max(1e-12) } else { scale.high - scale.low };
        let (low, high) = if flat { (values[0], values[0]) } else { (scale.low, scale.high) };
        let low = if low >= 0.0 && low < 0.35 * span + f64::MIN_POSITIVE { 0.0 } else { low - 0.06 * span };
        Self { low, high: high + 0.06 * span, ..scale }
    }

    fn at(&self, value: f64) -> f64 {
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }
}

/// About `count` round numbers between the two.
fn ticks(low: f64, high: f64, count: usize) -> Vec<f64> {
    let rough = (high - low) / count as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    if !step.is_finite() || step <= 0.0 {
        return vec![low];
    }
    let first = (low / step).ceil() as i64;
    (first..).map(|i| i as f64 * step).take_while(|t| *t <= high + step * 1e-9).take(20).collect()
}

/// A tick's text, as exact as ticks this far apart need.
fn label(value: f64, span: f64) -> String {
    let size = value.abs().max(span);
    if value == 0.0 {
        "0".to_owned()
    } else if size >= 1e6 {
        format!("{}M", trimmed(value / 1e6, 2))
    } else if size >= 1e4 {
        format!("{}k", trimmed(value / 1e3, 1))
    } else if size < 1e-3 {
        let text = format!("{value:.2e}");
        match text.split_once('e') {
            Some((digits, power)) => {
                format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            None => text,
        }
    } else {
        trimmed(value, (2 - span.log10().floor() as i32).clamp(0, 6) as usize)
    }
}

fn trimmed(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// At most [`MAX_POINTS`] points: means of neighbours.
fn thinned(points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points;
    }
    let size = points.len().div_ceil(MAX_POINTS);
    points
        .chunks(size)
        .map(|c| {
            let n = c.len() as f64;
            (c.iter().map(|p| p.0).sum::<f64>() / n, c.iter().map(|p| p.1).sum::<f64>() / n)
        })
        .collect()
}

/// A moving average centred on each point, about a fortieth of the points wide; at the ends as far as there are points
/// on both sides. Points that are not finite are left out.
pub(super) fn smoothed(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|p| p.1.is_finite()).collect();
    let half = points.len() / 80;
    let mut sums = vec![0.0];
    for p in &points {
        sums.push(sums[sums.len() - 1] + p.1);
    }
    let mean = |(i, p): (usize, &(f64, f64))| {
        let half = half.min(i).min(points.len() - 1 - i);
        (p.0, (sums[i + half + 1] - sums[i - half]) / (2 * half + 1) as f64)
    };
    points.iter().enumerate().map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(0.0, 1.0, 5), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(0.0, 9.0, 6), [0.0, 2.0, 4.0, 6.0, 8.0]);
        for (low, high) in [(0.0, 5e-4), (2.1, 2.2), (-3.0, 1e7), (0.0, 1e-300), (f64::NAN, 1.0)] {
            assert!(ticks(low, high, 5).len() <= 20, "{low} {high}");
        }
    }

    #[test]
    fn labels_are_short() {
        for (value, span, text) in [
            (0.2, 1.0, "0.2"),
            (15000.0, 2e4, "15k"),
            (5e-4, 5e-4, "5e-4"),
            (2.15, 0.1, "2.15"),
            (0.0, 1.0, "0"),
        ] {
            assert_eq!(label(value, span), text);
        }
    }

    #[test]
    fn thinning_keeps_the_mean_and_the_limit() {
        let points: Vec<(f64, f64)> = (0..6000).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        let thin = thinned(points);
        assert_eq!(thin.len(), 600);
        assert!(thin.iter().all(|p| p.1 == 0.5));
    }

    #[test]
    fn smoothing_keeps_a_straight_line_and_takes_out_noise() {
        let line: Vec<(f64, f64)> = (0..800).map(|i| (f64::from(i), f64::from(i) * 0.5)).collect();
        assert_eq!(smoothed(&line), line);
        let noise: Vec<(f64, f64)> = (0..800).map(|i| (f64::from(i), f64::from(i % 2))).collect();
        assert!(smoothed(&noise)[100..700].iter().all(|p| (p.1 - 0.5).abs() < 0.03));
        assert!(smoothed(&[]).is_empty());
    }

    #[test]
    fn flat_single_and_empty_lines_draw_without_nan() {
        for points in [vec![(1.0, 0.0)], vec![(0.0, 5.0), (1.0, 5.0)], vec![(0.0, f64::NAN)], vec![]] {
            let mut out = String::new();
            Chart::new("t", "step", vec![Series::line("a", points.clone())]).render(&mut out);
            assert!(!out.contains("NaN") && !out.contains("inf"), "{points:?}: {out}");
        }
    }
}
