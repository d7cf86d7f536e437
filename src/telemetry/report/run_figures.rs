//! The charts of a page: of one run, or of several runs in the same charts.

use super::figures::{Figure, Format, Line};
use super::records::{Anatomy, Run};
use crate::telemetry::events::{EpochEvent, Metrics, StepEvent};

/// Charts of numbers that every step event has: title, format, the name of the line, whether it is smoothed.
type OfSteps = (&'static str, Format, &'static str, bool, fn(&StepEvent) -> f64);
const OF_STEPS: [OfSteps; 4] = [
    ("Learning rate", Format::Number, "learning rate", false, |s| s.lr),
    ("Gradient norm", Format::Number, "norm", true, |s| s.grad_norm.unwrap_or(f64::NAN)),
    ("Samples per second", Format::Number, "samples/s", true, |s| s.samples_per_s),
    ("Waiting for data", Format::Percent, "part of the time", true, |s| s.data_wait),
];

/// The titles of the charts of where time goes.
const OF_ANATOMY: [&str; 2] = ["Time per step", "Communication beside the backward pass"];

/// The charts of one run.
pub(super) fn of_run(run: &Run) -> Vec<Figure> {
    let mut figures = vec![Figure::new(
        "Loss",
        Format::Number,
        vec![
            Line::new("training", 0, per_step(run, |s| s.loss)).smooth(),
            Line::new("validation", 0, per_epoch(run, |e| e.val.as_ref(), "loss")).coloured(1),
        ],
    )];
    for name in run.metrics().into_iter().filter(|name| *name != "loss") {
        let lines = vec![
            Line::new("training", 0, per_epoch(run, |e| Some(&e.train), name)),
            Line::new("validation", 0, per_epoch(run, |e| e.val.as_ref(), name)).coloured(1),
        ];
        figures.push(Figure::new(words(name), format_of(name), lines));
    }
    figures.extend(OF_STEPS.map(|(title, format, name, smooth, of)| {
        let line = Line { smooth, ..Line::new(name, 0, per_step(run, of)) };
        linear_speed(Figure::new(title, format, vec![line]))
    }));
    figures.extend(anatomy(run));
    figures.into_iter().filter_map(Figure::if_any).collect()
}

/// The charts of runs over each other, one colour each.
pub(super) fn of_runs(runs: &[(&str, &Run)]) -> Vec<Figure> {
    let each = |title: String, format, smooth: bool, points: &dyn Fn(&Run) -> Vec<(f64, f64)>| {
        let line = |(i, (name, run)): (usize, &(&str, &Run))| Line {
            smooth,
            ..Line::new(*name, i, points(run)).coloured(i)
        };
        Figure::new(title, format, runs.iter().enumerate().map(line).collect())
    };
    let mut names: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(|(_, run)| run.metrics()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut figures =
        vec![each("Training loss".into(), Format::Number, true, &|run| per_step(run, |s| s.loss))];
    for name in names {
        let val = |run: &Run| per_epoch(run, |e| e.val.as_ref(), name);
        let train = |run: &Run| per_epoch(run, |e| Some(&e.train), name);
        if runs.iter().any(|(_, run)| !val(run).is_empty()) {
            figures.push(each(
                format!("Validation {}", words(name).to_lowercase()),
                format_of(name),
                false,
                &val,
            ));
        } else if name != "loss" {
            figures.push(each(
                format!("Training {}", words(name).to_lowercase()),
                format_of(name),
                false,
                &train,
            ));
        }
    }
    figures.extend(OF_STEPS.map(|(title, format, _, smooth, of)| {
        linear_speed(each(title.into(), format, smooth, &|run| per_step(run, of)))
    }));
    figures.into_iter().filter_map(Figure::if_any).collect()
}

/// The titles of all charts that the page of these runs may have, in their order.
#[cfg(feature = "board")]
pub(super) fn titles(runs: &[(&str, &Run)]) -> Vec<String> {
    let of_steps = OF_STEPS.map(|(title, ..)| title.to_owned());
    let mut titles = Vec::new();
    if let [(_, run)] = runs {
        titles.push("Loss".to_owned());
        titles.extend(run.metrics().into_iter().filter(|name| *name != "loss").map(words));
        titles.extend(of_steps);
        titles.extend(OF_ANATOMY.map(str::to_owned));
        return titles;
    }
    titles.push("Training loss".to_owned());
    for name in runs.iter().flat_map(|(_, run)| run.metrics()) {
        let name = words(name).to_lowercase();
        titles.extend([format!("Validation {name}"), format!("Training {name}")]);
    }
    titles.extend(of_steps);
    let mut seen = std::collections::BTreeSet::new();
    titles.retain(|title| seen.insert(title.clone()));
    titles
}

fn linear_speed(figure: Figure) -> Figure {
    Figure { log: figure.log && figure.title != "Samples per second", ..figure }
}

/// The mean over ranks of each phase of a step, stacked, and how much of the communication is hidden.
fn anatomy(run: &Run) -> Vec<Figure> {
    let Anatomy { phases, windows, .. } = &run.anatomy;
    let line = |(i, name): (usize, &&str)| {
        let points = windows.iter().map(|window| (window.step as f64, window.means[i])).collect();
        Line::new(*name, 0, points).coloured(i)
    };
    let lines = phases.iter().enumerate().map(line).collect();
    let overlap = windows.iter().map(|window| (window.step as f64, window.overlap.unwrap_or(f64::NAN)));
    let overlap = Line::new("part of the communication", 0, overlap.collect()).smooth();
    vec![
        Figure { stacked: true, ..Figure::new(OF_ANATOMY[0], Format::Seconds, lines) },
        Figure::new(OF_ANATOMY[1], Format::Percent, vec![overlap]),
    ]
}

fn per_step(run: &Run, of: fn(&StepEvent) -> f64) -> Vec<(f64, f64)> {
    run.steps().map(|s| (s.step as f64, of(s))).collect()
}

fn per_epoch(run: &Run, of: fn(&EpochEvent) -> Option<&Metrics>, name: &str) -> Vec<(f64, f64)> {
    run.epochs().filter_map(|e| Some((e.step as f64, of(e)?.get(name)?))).collect()
}

/// `Top5`, `Mean iou`: a metric's name as a title.
fn words(metric: &str) -> String {
    let words = metric.replace(['_', '-'], " ");
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}", letters.as_str())
}

fn format_of(metric: &str) -> Format {
    if matches!(metric, "accuracy" | "top5") { Format::Percent } else { Format::Number }
}
