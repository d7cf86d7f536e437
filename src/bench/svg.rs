//! The plot: size against bus bandwidth and size against time, both axes logarithmic, one line for each algorithm,
//! transport and element type, the machine's limits dashed. A self-contained SVG that follows the reader's light or
//! dark scheme.

use super::limits::SizeLimits;
use super::report::{Report, Row};
use super::units::{self, micros, rate};
use crate::telemetry::report::escape;
use panel::Panel;
use std::fmt::Write;

#[path = "svg_panel.rs"]
mod panel;

const STYLE: &str = include_str!("svg.css");
const WIDTH: f64 = 1160.0;
const TOP: f64 = 76.0;
const KEY_LINE: f64 = 24.0;
const KEY_COLUMNS: usize = 4;

/// Bytes, bus bandwidth in GB/s, microseconds.
type Point = (f64, f64, f64);

/// One line of both panels.
struct Series {
    name: String,
    points: Vec<Point>,
}

pub fn render(report: &Report) -> String {
    let (limits, lines) = (limits(report), lines(report));
    let keys = lines.len().div_ceil(KEY_COLUMNS) + 1;
    let height = TOP + panel::HEIGHT + 38.0 + keys as f64 * KEY_LINE;
    let title = format!("all-reduce ({}) between {} processes", report.op, report.world);
    let machine = &report.machine;
    let facts = format!("{} · ddp-run {} · {}", machine.facts(), machine.ddp_run, machine.started);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"24\" y=\"36\">{title}</text>\n<text x=\"24\" y=\"57\">{}</text>\n",
        escape(&facts)
    );
    let side = (WIDTH - 24.0 * 2.0 - 16.0) / 2.0;
    let bandwidth = Figure {
        title: "Bus bandwidth (higher is better)",
        of: |p| p.1,
        text: |v| format!("{} GB/s", rate(v)),
        label: units::round_rate,
    };
    let time = Figure {
        title: "Median time (lower is better)",
        of: |p| p.2,
        text: |v| format!("{} us", micros(v)),
        label: units::round_time,
    };
    draw(&mut out, &limits, &lines, &bandwidth, 24.0, side);
    draw(&mut out, &limits, &lines, &time, 24.0 + side + 16.0, side);
    legend(&mut out, &limits, &lines);
    out.push_str("</svg>\n");
    out
}

/// What a panel shows.
struct Figure {
    title: &'static str,
    of: fn(&Point) -> f64,
    /// Of a point, in full.
    text: fn(f64) -> String,
    /// Of the axis.
    label: fn(f64) -> String,
}

fn draw(out: &mut String, limits: &[Series], lines: &[Series], figure: &Figure, left: f64, width: f64) {
    let of = |p: &Point| (p.0, (figure.of)(p));
    let points = |s: &Series| s.points.iter().map(of).filter(panel::shown).collect::<Vec<_>>();
    let all = limits.iter().chain(lines).flat_map(points);
    let Some(panel) = Panel::new(left, TOP, width, all) else { return };
    panel.frame(out, figure.title, figure.label);
    for (i, s) in limits.iter().enumerate() {
        panel.line(out, &limit_class(i), &points(s));
    }
    for (i, s) in lines.iter().enumerate() {
        panel.line(out, &line_class(i), &points(s));
        for (x, y) in points(s) {
            let tip = format!("{}, {}: {}", s.name, units::size(x as usize), (figure.text)(y));
            let (x, y) = panel.at(x, y);
            panel::marker(out, i, x, y, &tip);
        }
    }
}

fn limit_class(i: usize) -> String {
    format!("limit l{i}")
}

fn line_class(i: usize) -> String {
    format!("line s{}", i % panel::COLOURS)
}

/// The lines, and on a row of their own the limits.
fn legend(out: &mut String, limits: &[Series], lines: &[Series]) {
    let mut key = |class: String, name: &str, place: usize, number: Option<usize>| {
        let x = 24.0 + (place % KEY_COLUMNS) as f64 * (WIDTH - 48.0) / KEY_COLUMNS as f64;
        let y = TOP + panel::HEIGHT + 32.0 + (place / KEY_COLUMNS) as f64 * KEY_LINE;
        let _ = write!(out, "<path class=\"{class}\" d=\"{}\"/>", panel::path(&[(x, y), (x + 34.0, y)]));
        if let Some(number) = number {
            panel::marker(out, number, x + 17.0, y, name);
        }
        let _ = writeln!(out, "<text class=\"key\" x=\"{}\" y=\"{}\">{name}</text>", x + 42.0, y + 4.0);
    };
    for (i, s) in lines.iter().enumerate() {
        key(line_class(i), &s.name, i, Some(i));
    }
    let below = lines.len().next_multiple_of(KEY_COLUMNS);
    for (i, s) in limits.iter().enumerate() {
        key(limit_class(i), &s.name, below + i, None);
    }
}

fn limits(report: &Report) -> Vec<Series> {
    let series = |name: String, of: fn(&SizeLimits) -> (f64, f64)| {
        let point = |l: &SizeLimits| (l.bytes as f64, of(l).0, of(l).1);
        Series { name, points: report.limits.sizes.iter().map(point).collect() }
    };
    vec![
        series("limit: memcpy, 1 core".into(), |l| {
            (l.memcpy_one_gbs, l.bytes as f64 / l.memcpy_one_gbs / 1e3)
        }),
        series(format!("limit: memcpy, each of {} at once", report.world), |l| {
            (l.memcpy_all_gbs, l.bytes as f64 / l.memcpy_all_gbs / 1e3)
        }),
        series("limit: loopback TCP".into(), |l| (l.tcp_gbs, l.tcp_us)),
    ]
}

fn lines(report: &Report) -> Vec<Series> {
    let name = names(&report.rows);
    let mut out: Vec<Series> = Vec::new();
    for row in &report.rows {
        let (name, point) = (name(row), (row.bytes as f64, row.busbw_gbs, row.timing.median_us));
        match out.iter_mut().find(|s| s.name == name) {
            Some(s) => s.points.push(point),
            None => out.push(Series { name, points: vec![point] }),
        }
    }
    out
}

/// What tells the lines apart: the algorithm, and where they differ transport and type.
fn names(rows: &[Row]) -> impl Fn(&Row) -> String {
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
        // Two panels, and the legend.
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
    fn names_say_only_what_differs() {
        let mut report = report();
        assert!(render(&report).contains(">ring</text>"));
        report.rows[0].dtype = crate::comm::DType::F64;
        assert!(render(&report).contains(">ring, f32</text>"));
    }
}
