//! The plot: bus bandwidth and time by size, with logarithmic axes, one line per algorithm, transport and element
//! type, and the machine's limits as dashed lines. A self-contained SVG that follows the reader's light or dark
//! scheme.

use super::limits::SizeLimits;
use super::report::{BenchReport, Row};
use super::units::{self, micros, rate};
use record::chart::{self, Axis, Chart, Look, Series};
use record::report::escape;
use std::fmt::Write;

const STYLE: &str = include_str!("svg.css");
const WIDTH: f64 = 1160.0;
const EDGE: f64 = 24.0;
const TOP: f64 = 76.0;
const CARD: f64 = 380.0;
const KEY_LINE: f64 = 24.0;
const KEY_COLUMNS: usize = 4;
const LIMITS: usize = 3;

pub fn render(report: &BenchReport) -> String {
    let bandwidths = series(report, |r| r.busbw_gbs, |l| [l.memcpy_one_gbs, l.memcpy_all_gbs, l.tcp_gbs]);
    let copy_us = |l: &SizeLimits, gbs: f64| l.bytes as f64 / gbs / 1e3;
    let times = series(
        report,
        |r| r.timing.median_us,
        |l| [copy_us(l, l.memcpy_one_gbs), copy_us(l, l.memcpy_all_gbs), l.tcp_us],
    );
    let sizes =
        Axis { log: true, unit: "", tick: |v, _| units::size(v as usize), text: |v| units::size(v as usize) };
    let bandwidth =
        Axis { tick: |v, _| units::round_rate(v), text: |v| format!("{} GB/s", rate(v)), ..sizes };
    let time = Axis { tick: |v, _| units::round_time(v), text: |v| format!("{} us", micros(v)), ..sizes };

    let rows = (bandwidths.len() - LIMITS).div_ceil(KEY_COLUMNS) + 1;
    let height = TOP + CARD + 38.0 + rows as f64 * KEY_LINE;
    let title = format!("all-reduce ({}) between {} processes", report.op, report.world);
    let machine = &report.machine;
    let facts = format!("{} · ddp-run {} · {}", machine.facts(), machine.ddp_run, machine.started);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>{}{STYLE}</style>\n\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{EDGE}\" y=\"36\">{title}</text>\n<text x=\"{EDGE}\" y=\"57\">{}</text>\n",
        chart::STYLE,
        escape(&facts)
    );
    legend(&mut out, &bandwidths);
    let side = (WIDTH - EDGE * 2.0 - 16.0) / 2.0;
    Chart::new("Bus bandwidth (higher is better)", sizes, bandwidth, bandwidths)
        .card(&mut out, [EDGE, TOP, side, CARD]);
    Chart::new("Median time (lower is better)", sizes, time, times)
        .card(&mut out, [EDGE + side + 16.0, TOP, side, CARD]);
    out.push_str("</svg>\n");
    out
}

/// The names of the lines, and of the limits in a separate row.
fn legend(out: &mut String, series: &[Series]) {
    let (limits, lines) = series.split_at(LIMITS);
    let below = lines.len().next_multiple_of(KEY_COLUMNS);
    for (place, series) in lines.iter().enumerate().chain((below..).zip(limits)) {
        let x = EDGE + (place % KEY_COLUMNS) as f64 * (WIDTH - EDGE * 2.0) / KEY_COLUMNS as f64;
        let y = TOP + CARD + 32.0 + (place / KEY_COLUMNS) as f64 * KEY_LINE;
        series.key(out, x, y);
    }
}

/// The machine's limits, drawn beneath, and a line for each kind of row.
fn series(
    report: &BenchReport,
    of: fn(&Row) -> f64,
    limits: impl Fn(&SizeLimits) -> [f64; LIMITS],
) -> Vec<Series> {
    let each = format!("limit: memcpy, each of {} at once", report.world);
    let names = ["limit: memcpy, 1 core", each.as_str(), "limit: loopback TCP"];
    let limit = |(i, name): (usize, &&str)| {
        let points = report.limits.sizes.iter().map(|l| (l.bytes as f64, limits(l)[i])).collect();
        Series::new(*name, Look::Limit(i), points)
    };
    let name = names_of(&report.rows);
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in &report.rows {
        let (name, point) = (name(row), (row.bytes as f64, of(row)));
        match lines.iter_mut().find(|line| line.0 == name) {
            Some(line) => line.1.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    let lines = lines.into_iter().enumerate();
    let lines = lines.map(|(i, (name, points))| Series::new(name, Look::Marked(i), points));
    names.iter().enumerate().map(limit).chain(lines).collect()
}

/// Names that distinguish the lines: the algorithm, and the transport and type if they differ.
fn names_of(rows: &[Row]) -> impl Fn(&Row) -> String {
    let transports = rows.iter().any(|r| r.transport != rows[0].transport);
    let dtypes = rows.iter().any(|r| r.dtype != rows[0].dtype);
    move |row| {
        let mut name = row.algorithm.name().to_owned();
        if transports {
            let _ = write!(name, ", {}", row.transport);
        }
        if dtypes {
            let _ = write!(name, ", {}", row.dtype);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::report;

    #[test]
    fn every_row_is_a_marker_in_both_panels_and_every_limit_a_dashed_line() {
        let report = report();
        let svg = render(&report);
        let count = |part: &str| svg.matches(part).count();
        // Two panels and the legend.
        assert_eq!(count("class=\"m "), report.rows.len() * 2 + 2, "{svg}");
        assert_eq!(count("class=\"limit "), 3 * 3);
        assert_eq!(count("class=\"line "), 2 * 3);
        assert!(
            svg.contains("<title>ring, 64 MiB: ") && svg.contains(">limit: memcpy, each of 2 at once</text>"),
            "{svg}"
        );
        assert!(svg.contains("AMD &lt;EPYC&gt; &amp; co"), "text is escaped");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert!(svg.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn larger_is_further_right_and_faster_is_higher_on_the_left() {
        let svg = render(&report());
        let at = |tip: &str, nth: usize| {
            let tag = svg.split("<path class=\"m ").filter(|t| t.contains(&format!("<title>{tip}"))).nth(nth);
            let at = tag.and_then(|t| t.split("translate(").nth(1)?.split(')').next()).expect(tip);
            let (x, y) = at.split_once(' ').unwrap();
            (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())
        };
        let (small, large) = (at("auto, 4 B", 0), at("auto, 64 MiB", 0));
        assert!(small.0 < large.0 && small.1 > large.1, "{small:?} {large:?}");
        let (auto, ring) = (at("auto, 1 MiB", 0), at("ring, 1 MiB", 0));
        assert!(auto.0 == ring.0 && auto.1 < ring.1, "{auto:?} {ring:?}");
        let (auto, ring) = (at("auto, 1 MiB", 1), at("ring, 1 MiB", 1));
        assert!(auto.1 > ring.1, "{auto:?} {ring:?}");
    }

    #[test]
    fn one_size_alone_and_zero_times_draw_without_nan() {
        let mut report = report();
        report.rows.truncate(1);
        report.limits.sizes.truncate(1);
        report.rows[0].timing.median_us = 0.0;
        report.rows[0].busbw_gbs = f64::INFINITY;
        let svg = render(&report);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn names_contain_only_what_differs() {
        let mut report = report();
        assert!(render(&report).contains(">ring</text>"));
        report.rows[0].dtype = collectives::DType::F64;
        assert!(render(&report).contains(">ring, f32</text>"));
    }
}
