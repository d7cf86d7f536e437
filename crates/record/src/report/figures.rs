//! The charts of a page: as static drawings, and as the data that the page's script draws them from.

use super::records::RunRecords;
use super::timeline::{Axis as RunAxis, Mark, MarkKind};
use crate::chart::{self, Axis, COLOURS, Chart, Look, Rule, Series, is_dashed};
use base::numbers::significant;
use serde::Serialize;
use std::collections::BTreeMap;

/// Longer series are in the page as means, least and greatest values of this many groups of neighbours.
const GROUPS: usize = 1000;
const MAX_POINTS: usize = 2 * GROUPS;
/// Up to this length a series is drawn unchanged.
const ROUGH: usize = 30;
/// Per line; more markers overlap.
const MAX_MARKERS: usize = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Format {
    Number,
    /// A fraction, shown as a percentage.
    Percent,
    /// Shown in milliseconds.
    Seconds,
}

/// A chart over steps.
pub(super) struct Figure {
    pub title: String,
    pub format: Format,
    /// Whether the y axis may be logarithmic.
    pub log: bool,
    /// Each line begins where the one before ends.
    pub stacked: bool,
    pub lines: Vec<PlotLine>,
}

pub(super) struct PlotLine {
    pub name: String,
    /// The number of its run.
    pub run: usize,
    pub colour: usize,
    /// Has a point for every few steps, and noise.
    pub smooth: bool,
    /// By step.
    pub points: Vec<(f64, f64)>,
}

/// The data of the script.
#[derive(Serialize)]
pub(super) struct PageData<'a> {
    runs: Vec<RunData<'a>>,
    figures: Vec<FigureData<'a>>,
    marks: &'a [Mark],
    glyphs: BTreeMap<&'static str, &'static str>,
}

#[derive(Serialize)]
struct RunData<'a> {
    name: &'a str,
    colour: usize,
    dashed: bool,
    axis: RunAxis,
}

#[derive(Serialize)]
pub(super) struct FigureData<'a> {
    format: Format,
    log: bool,
    stacked: bool,
    series: Vec<LineData<'a>>,
}

/// Values that are not finite are `null`.
#[derive(Serialize)]
struct LineData<'a> {
    name: &'a str,
    run: usize,
    colour: usize,
    smooth: bool,
    dashed: bool,
    step: Vec<f64>,
    y: Vec<Option<f64>>,
    /// The least and the greatest values of groups.
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<Vec<Option<f64>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<Vec<Option<f64>>>,
}

impl<'a> PageData<'a> {
    pub fn new(runs: &[(&'a str, &RunRecords)], figures: &'a [Figure], marks: &'a [Mark]) -> Self {
        let run = |(i, pair): (usize, &(&'a str, &RunRecords))| RunData {
            name: pair.0,
            colour: i % COLOURS,
            dashed: is_dashed(i),
            axis: axis(pair.1),
        };
        Self {
            runs: runs.iter().enumerate().map(run).collect(),
            figures: figures.iter().map(FigureData::new).collect(),
            marks,
            glyphs: MarkKind::ALL.map(|kind| (kind.name(), kind.glyph())).into(),
        }
    }
}

/// The x axes of a run, as a page has them.
pub(super) fn axis(run: &RunRecords) -> RunAxis {
    let axis = RunAxis::new(run);
    RunAxis { time: axis.time.iter().map(|t| short(*t).unwrap_or(0.0)).collect(), ..axis }
}

impl<'a> FigureData<'a> {
    pub fn new(figure: &'a Figure) -> Self {
        let series = figure.lines.iter().map(|line| line.data(figure.stacked)).collect();
        Self { format: figure.format, log: figure.log, stacked: figure.stacked, series }
    }
}

impl PlotLine {
    pub fn new(name: impl Into<String>, run: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), run, colour: 0, smooth: false, points }
    }

    pub fn smooth(self) -> Self {
        Self { smooth: true, ..self }
    }

    pub fn coloured(self, colour: usize) -> Self {
        Self { colour, ..self }
    }

    /// `stacked`: only means, because the edges of layers would belong to different steps.
    fn data(&self, stacked: bool) -> LineData<'_> {
        let mut data = LineData {
            name: &self.name,
            run: self.run,
            colour: self.colour % COLOURS,
            smooth: self.smooth,
            dashed: is_dashed(self.colour),
            step: Vec::new(),
            y: Vec::new(),
            low: None,
            high: None,
        };
        if self.points.len() <= MAX_POINTS {
            data.step = self.points.iter().map(|p| p.0).collect();
            data.y = self.points.iter().map(|p| short(p.1)).collect();
            return data;
        }
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for group in self.points.chunks(self.points.len().div_ceil(GROUPS)) {
            let values: Vec<f64> = group.iter().map(|p| p.1).filter(|v| v.is_finite()).collect();
            data.step.push(group[group.len() / 2].0);
            data.y.push(short(values.iter().sum::<f64>() / values.len() as f64));
            low.push(short(values.iter().copied().fold(f64::INFINITY, f64::min)));
            high.push(short(values.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
        }
        if !stacked {
            (data.low, data.high) = (Some(low), Some(high));
        }
        data
    }
}

/// With six significant digits, which are shorter as text.
fn short(value: f64) -> Option<f64> {
    value.is_finite().then(|| format!("{value:.5e}").parse().unwrap_or(value))
}

impl Figure {
    pub fn new(title: impl Into<String>, format: Format, lines: Vec<PlotLine>) -> Self {
        Self { title: title.into(), format, log: format == Format::Number, stacked: false, lines }
    }

    /// Without lines that have no finite value; `None` if nothing is left.
    pub fn if_any(mut self) -> Option<Self> {
        self.lines.retain(|line| line.points.iter().any(|p| p.1.is_finite()));
        (!self.lines.is_empty()).then_some(self)
    }

    /// Writes the static drawing.
    pub fn draw(&self, out: &mut String, marks: &[Mark]) {
        let x = Axis { log: false, unit: "step", tick: chart::label, text: |v| format!("step {v}") };
        let series = if self.stacked { self.layers() } else { self.series() };
        let rule = |mark: &Mark| Rule {
            x: mark.step as f64,
            class: mark.kind.name(),
            glyph: mark.kind.glyph(),
            through: mark.has_rule(),
            text: mark.text.clone(),
        };
        let rules = marks.iter().map(rule).collect();
        Chart::new(&self.title, x, self.format.axis(), series).with_rules(rules).figure(out);
    }

    fn series(&self) -> Vec<Series> {
        let mut series = Vec::new();
        for line in &self.lines {
            let look = if line.smooth || line.points.len() > MAX_MARKERS { Look::Line } else { Look::Marked };
            if line.smooth && line.points.len() > ROUGH {
                if self.lines.iter().filter(|other| other.smooth).count() == 1 {
                    series.push(Series::new("each step", Look::Faint, line.points.clone()));
                }
                series.push(Series::new(&line.name, look(line.colour), chart::smoothed(&line.points)));
            } else {
                series.push(Series::new(&line.name, look(line.colour), line.points.clone()));
            }
        }
        series
    }

    /// The upper edges, the highest first: each layer covers the lower part of the one before.
    fn layers(&self) -> Vec<Series> {
        let mut edge: BTreeMap<u64, f64> = BTreeMap::new();
        let mut series = Vec::new();
        for line in &self.lines {
            let points = line.points.iter().map(|(x, y)| {
                let top = edge.entry(*x as u64).or_default();
                *top += if y.is_finite() { *y } else { 0.0 };
                (*x, *top)
            });
            series.push(Series::new(&line.name, Look::Layer(line.colour), points.collect()));
        }
        series.reverse();
        series
    }
}

impl Format {
    fn axis(self) -> Axis {
        type Texts = (fn(f64, f64) -> String, fn(f64) -> String);
        let (tick, text): Texts = match self {
            Format::Number => (chart::label, significant),
            Format::Percent => (
                |value, span| format!("{} %", chart::label(100.0 * value, 100.0 * span)),
                |value| format!("{:.2} %", 100.0 * value),
            ),
            Format::Seconds => (
                |value, span| format!("{} ms", chart::label(1e3 * value, 1e3 * span)),
                |value| format!("{} ms", significant(1e3 * value)),
            ),
        };
        Axis { log: false, unit: "", tick, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_keeps_its_spikes_and_its_mean() {
        let value = |i: u32| if i == 777_777 { 1e6 } else { f64::from(i % 2) };
        let points = (0..1_000_000u32).map(|i| (f64::from(i), value(i))).collect();
        let line = PlotLine::new("loss", 0, points).smooth();
        let data = line.data(false);
        assert_eq!(data.step.len(), GROUPS);
        let (low, high) = (data.low.unwrap(), data.high.unwrap());
        assert!(high.contains(&Some(1e6)), "the spike");
        assert_eq!((low[0], data.y[0], high[0]), (Some(0.0), Some(0.5), Some(1.0)));
        assert!(line.data(true).low.is_none());
    }

    #[test]
    fn values_that_are_not_finite_are_null_and_numbers_are_short() {
        let line = PlotLine::new("loss", 0, vec![(1.0, f64::NAN), (2.0, 1.0 / 3.0), (3.0, f64::INFINITY)]);
        assert_eq!(line.data(false).y, [None, Some(0.333333), None]);
        let nan = vec![(1.0, f64::NAN); 5000];
        assert!(PlotLine::new("loss", 0, nan).data(false).high.unwrap().iter().all(Option::is_none));
    }
}
