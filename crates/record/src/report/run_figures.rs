//! The charts of a page: of one run, or of several runs in the same charts.

use super::compare::comparable;
use super::figures::{Figure, Format, PlotLine};
use super::records::{Anatomy, RunRecords};
use crate::comparable::{Comparable, listed};
use crate::events::{EpochEvent, Metrics, StepEvent};

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
pub(super) fn of_run(run: &RunRecords) -> Vec<Figure> {
    let mut figures = vec![Figure::new(
        "Loss",
        Format::Number,
        vec![
            PlotLine::new("training", 0, per_step(run, |s| s.loss)).smooth(),
            PlotLine::new("validation", 0, per_epoch(run, |e| e.val.as_ref(), "loss")).coloured(1),
        ],
    )];
    for name in run.metrics().into_iter().filter(|name| *name != "loss") {
        let lines = vec![
            PlotLine::new("training", 0, per_epoch(run, |e| Some(&e.train), name)),
            PlotLine::new("validation", 0, per_epoch(run, |e| e.val.as_ref(), name)).coloured(1),
        ];
        figures.push(Figure::new(words(name), format_of(name), lines));
    }
    figures.extend(OF_STEPS.map(|(title, format, name, smooth, of)| {
        let line = PlotLine { smooth, ..PlotLine::new(name, 0, per_step(run, of)) };
        linear_speed(Figure::new(title, format, vec![line]))
    }));
    figures.extend(anatomy(run));
    figures.into_iter().filter_map(Figure::if_any).collect()
}

/// The charts of runs over each other, one colour each. Values that do not compare are in separate ones.
pub(super) fn of_runs(runs: &[(&str, &RunRecords)]) -> Vec<Figure> {
    let each = |title: String,
                format,
                smooth: bool,
                members: &[usize],
                points: &dyn Fn(&RunRecords) -> Vec<(f64, f64)>| {
        let line = |i: &usize| {
            let (name, run) = runs[*i];
            PlotLine { smooth, ..PlotLine::new(name, *i, points(run)).coloured(*i) }
        };
        Figure::new(title, format, members.iter().map(line).collect())
    };
    let parts = Parts::new(runs);
    let mut figures: Vec<Figure> = parts
        .of_metric("loss", "Training loss")
        .into_iter()
        .map(|(title, members)| each(title, Format::Number, true, &members, &|run| per_step(run, |s| s.loss)))
        .collect();
    for name in metric_names(runs) {
        let val = |run: &RunRecords| per_epoch(run, |e| e.val.as_ref(), name);
        let train = |run: &RunRecords| per_epoch(run, |e| Some(&e.train), name);
        let titles = titles_of(name).map(|title| parts.of_metric(name, &title));
        for ((validation, members), (training, _)) in titles[0].iter().zip(&titles[1]) {
            if members.iter().any(|i| !val(runs[*i].1).is_empty()) {
                figures.push(each(validation.clone(), format_of(name), false, members, &val));
            } else if name != "loss" {
                figures.push(each(training.clone(), format_of(name), false, members, &train));
            }
        }
    }
    let all: Vec<usize> = (0..runs.len()).collect();
    figures.extend(OF_STEPS.map(|(title, format, _, smooth, of)| {
        linear_speed(each(title.into(), format, smooth, &all, &|run| per_step(run, of)))
    }));
    figures.into_iter().filter_map(Figure::if_any).collect()
}

/// The runs of each chart.
struct Parts<'a> {
    names: Vec<&'a str>,
    comparable: Comparable,
}

impl<'a> Parts<'a> {
    fn new(runs: &[(&'a str, &RunRecords)]) -> Self {
        Self { names: runs.iter().map(|(name, _)| *name).collect(), comparable: comparable(runs) }
    }

    /// The titles of the charts of a metric, each with its runs, which it names if there are several charts.
    fn of_metric(&self, metric: &str, title: &str) -> Vec<(String, Vec<usize>)> {
        let all = self.comparable.members(metric);
        let several = all.len() > 1;
        let titled = |members: Vec<usize>| {
            let names: Vec<&str> = members.iter().map(|i| self.names[*i]).collect();
            (if several { format!("{title}: {}", listed(&names)) } else { title.to_owned() }, members)
        };
        all.into_iter().map(titled).collect()
    }
}

/// Validation and training.
fn titles_of(metric: &str) -> [String; 2] {
    let words = words(metric).to_lowercase();
    [format!("Validation {words}"), format!("Training {words}")]
}

/// The metrics of all runs, in the order of the first that has them.
pub(super) fn metric_names<'a>(runs: &[(&str, &'a RunRecords)]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(|(_, run)| run.metrics()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The titles of all charts that the page of these runs may have, in their order.
#[cfg(feature = "board")]
pub(super) fn titles(runs: &[(&str, &RunRecords)]) -> Vec<String> {
    let of_steps = OF_STEPS.map(|(title, ..)| title.to_owned());
    let mut titles = Vec::new();
    if let [(_, run)] = runs {
        titles.push("Loss".to_owned());
        titles.extend(run.metrics().into_iter().filter(|name| *name != "loss").map(words));
        titles.extend(of_steps);
        titles.extend(OF_ANATOMY.map(str::to_owned));
        return titles;
    }
    let parts = Parts::new(runs);
    let of = |metric: &str, title: &str| parts.of_metric(metric, title).into_iter().map(|(title, _)| title);
    titles.extend(of("loss", "Training loss"));
    for name in metric_names(runs) {
        let [validation, training] = titles_of(name);
        titles.extend(of(name, &validation).zip(of(name, &training)).flat_map(|(val, train)| [val, train]));
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
fn anatomy(run: &RunRecords) -> Vec<Figure> {
    let Anatomy { phases, windows, .. } = &run.anatomy;
    let line = |(i, name): (usize, &&str)| {
        let points = windows.iter().map(|window| (window.step as f64, window.means[i])).collect();
        PlotLine::new(*name, 0, points).coloured(i)
    };
    let lines = phases.iter().enumerate().map(line).collect();
    let overlap = windows.iter().map(|window| (window.step as f64, window.overlap.unwrap_or(f64::NAN)));
    let overlap = PlotLine::new("part of the communication", 0, overlap.collect()).smooth();
    vec![
        Figure { stacked: true, ..Figure::new(OF_ANATOMY[0], Format::Seconds, lines) },
        Figure::new(OF_ANATOMY[1], Format::Percent, vec![overlap]),
    ]
}

fn per_step(run: &RunRecords, of: fn(&StepEvent) -> f64) -> Vec<(f64, f64)> {
    run.steps().map(|s| (s.step as f64, of(s))).collect()
}

fn per_epoch(run: &RunRecords, of: fn(&EpochEvent) -> Option<&Metrics>, name: &str) -> Vec<(f64, f64)> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::content::page;
    use crate::report::tests::{data_of, events, run};

    #[test]
    fn runs_on_other_data_are_not_compared() {
        let spec = |name: &str| format!("[dataset]\nname = \"{name}\"\n");
        let named = [("a", "mnist"), ("b", "cifar10"), ("c", "cifar10")];
        let all = named.map(|(_, data)| RunRecords { spec: Some(spec(data)), ..run(events()) });
        let runs: Vec<(&str, &RunRecords)> = named.iter().map(|(name, _)| *name).zip(&all).collect();
        let page = page(&runs, None);
        let data = data_of(&page);
        let drawn: Vec<&str> = page
            .split("<span class=\"title\">")
            .skip(1)
            .map(|rest| rest.split('<').next().unwrap())
            .collect();
        let expected = [
            "Training loss: a",
            "Training loss: b, c",
            "Validation loss: a",
            "Validation loss: b, c",
            "Validation accuracy: a",
            "Validation accuracy: b, c",
            "Learning rate",
            "Samples per second",
            "Waiting for data",
        ];
        assert_eq!(drawn, expected);
        let runs_of = |figure: usize| -> Vec<u64> {
            let series = data["figures"][figure]["series"].as_array().unwrap();
            series.iter().map(|line| line["run"].as_u64().unwrap()).collect()
        };
        assert_eq!((runs_of(0), runs_of(1), runs_of(6)), (vec![0], vec![1, 2], vec![0, 1, 2]));
        assert!(page.contains(
            "<h2>Results</h2><p>Kept apart, because values of different tasks or data do not compare: `dataset.name` is \
             &quot;mnist&quot; in a, and is &quot;cifar10&quot; in b.</p>"
        ));
        // The best of b and c; a alone is not ranked.
        let row = |name: &str| {
            let from =
                page.find(&format!("\">{name}</span></th><td>done")).unwrap_or_else(|| panic!("{page}"));
            page[from..].split("</tr>").next().unwrap().to_owned()
        };
        assert!(!row("a").contains("class=\"best\"") && row("b").contains("class=\"best\""));
        #[cfg(feature = "board")]
        {
            let order = titles(&runs);
            let places: Vec<usize> =
                expected.iter().map(|title| order.iter().position(|own| own == title).unwrap()).collect();
            assert!(places.is_sorted(), "{order:?}");
        }
    }
}
