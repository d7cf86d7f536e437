//! `ddp-run runs list`.

use super::facts::{FACTS, Fact};
use super::filter::{self, Filter, SortBy};
use super::folder::{RunFolder, RunStatus};
use base::display::{self, Column, Table};
use base::numbers::{metric_words, rate, seconds, significant};
use job::plan::show_bytes;
use record::comparable::Comparable;
use serde_json::Value as Json;
use spec::Values;
use std::collections::HashMap;

/// Which of the runs are listed, and in which order.
#[derive(Clone, Debug)]
pub struct Listing {
    /// Conditions that a listed run must meet, all of them.
    pub filters: Vec<Filter>,
    /// Order of the runs.
    pub sort: SortBy,
    /// Maximum number of runs to list; `None` lists all.
    pub limit: Option<usize>,
}

impl Listing {
    /// The runs to list, and warnings about keys that no run has, values that fit none, and runs that do not compare.
    pub fn select(&self, mut runs: Vec<RunFolder>) -> (Vec<RunFolder>, Vec<String>) {
        let keys = self.filters.iter().map(|filter| &filter.key).chain([&self.sort.key]);
        let unknown = keys.filter_map(|key| filter::unknown(key, &runs));
        let mut warnings: Vec<String> =
            unknown.chain(self.filters.iter().filter_map(|filter| filter.unfit(&runs))).collect();
        runs.retain(|run| self.filters.iter().all(|filter| filter.holds(run)));
        self.sort.apply(&mut runs);
        let runs = self.apart(runs, &mut warnings);
        (runs.into_iter().take(self.limit.unwrap_or(usize::MAX)).collect(), warnings)
    }

    /// Sorted by a metric, runs whose values compare are together: the others are no better and no worse.
    fn apart(&self, runs: Vec<RunFolder>, warnings: &mut Vec<String>) -> Vec<RunFolder> {
        let key = self.sort.key.as_str();
        let metric = |run: &RunFolder| match key {
            "best" => run.by.as_ref().filter(|_| run.course.best.is_some()).map(|by| by.metric.clone()),
            key => run.course.last(key).map(|_| key.to_owned()),
        };
        let metrics: Vec<Option<String>> = runs.iter().map(metric).collect();
        if metrics.iter().all(Option::is_none) {
            return runs;
        }
        let comparable = comparable(&runs.iter().collect::<Vec<_>>());
        let group = |(at, metric): (usize, &Option<String>)| {
            metric.as_ref().map(|metric| (metric.clone(), comparable.groups(metric)[at]))
        };
        let mut places = HashMap::new();
        let numbers: Vec<usize> = metrics
            .iter()
            .enumerate()
            .map(|run| {
                let next = places.len();
                *places.entry(group(run)).or_insert(next)
            })
            .collect();
        if places.keys().flatten().count() > 1 {
            let why = comparable.why().first().map_or("they rank by different metrics", String::as_str);
            warnings.push(format!("some runs are kept apart in the order of `{key}`, because {why}"));
        }
        let mut numbered: Vec<(usize, RunFolder)> = numbers.into_iter().zip(runs).collect();
        numbered.sort_by_key(|(number, _)| *number);
        numbered.into_iter().map(|(_, run)| run).collect()
    }

    /// Keys that a filter or the order names, and that have no column.
    fn named(&self) -> Vec<&str> {
        let usual = [
            "name",
            "folder",
            "state",
            "started",
            "epoch",
            "step",
            "best",
            "seconds",
            "samples_per_s",
            "world",
            "bytes",
        ];
        let mut named: Vec<&str> = Vec::new();
        for key in self.filters.iter().map(|filter| &filter.key).chain([&self.sort.key]) {
            if !usual.contains(&key.as_str()) && !named.contains(&key.as_str()) {
                named.push(key);
            }
        }
        named
    }
}

/// Whose values compare.
pub(super) fn comparable(runs: &[&RunFolder]) -> Comparable {
    let labels: Vec<String> = runs.iter().map(|run| run.label()).collect();
    let named: Vec<(&str, Option<&Values>)> =
        labels.iter().zip(runs).map(|(label, run)| (label.as_str(), run.spec.as_ref())).collect();
    Comparable::new(&named)
}

/// All columns of the list, and a row per run. The first column is the run's label, the second its state.
pub(crate) fn list_table(runs: &[RunFolder], listing: &Listing) -> Table {
    let named = listing.named();
    let mut columns = vec![Column::left("RUN", 0), Column::left("STATE", 0).whole()];
    columns.extend(named.iter().map(|key| Column::right(&display::name(key), 0)));
    columns.extend([
        Column::right("EPOCHS", 2),
        Column::left("BEST", 1).whole(),
        Column::right("LAST", 4),
        Column::left("STARTED", 3).whole(),
        Column::right("TIME", 5),
        Column::right("STEPS", 7),
        Column::right("SAMPLES/S", 8),
        Column::right("RANKS", 9),
        Column::right("SIZE", 6),
    ]);
    Table { columns, rows: runs.iter().map(|run| row(run, &named)).collect() }
}

/// A line per run, in at most `width` columns, and damaged runs below.
pub fn list_text(runs: &[RunFolder], listing: &Listing, width: Option<usize>) -> String {
    if runs.is_empty() {
        return "no runs\n".to_owned();
    }
    let mut out = list_table(runs, listing).text(width);
    let problems = runs.iter().flat_map(|run| run.problems.iter().map(move |why| (run, why)));
    let lines: Vec<String> =
        problems.map(|(run, why)| format!("{}: {}\n", run.label(), display::piece(why))).collect();
    if !lines.is_empty() {
        out.push('\n');
        out.extend(lines);
    }
    out
}

fn row(run: &RunFolder, named: &[&str]) -> Vec<String> {
    let course = &run.course;
    let mut row = vec![run.label(), state(run)];
    row.extend(named.iter().map(|key| value(run, key)));
    let by = run.by.as_ref();
    let best = course.best.as_ref().zip(by);
    let last = by.and_then(|by| Some(metric_words(&by.metric, course.last(&by.metric)?)));
    row.extend([
        epochs(run),
        best.map_or_else(String::new, |(best, by)| {
            format!("{} {}", by.metric, metric_words(&by.metric, best.value))
        }),
        last.unwrap_or_default(),
        started(&run.started),
        course.seconds().map_or_else(String::new, seconds) + &left(run),
        if course.trained { course.step.to_string() } else { String::new() },
        course.samples_per_s().map_or_else(String::new, rate),
        run.latest().map_or_else(String::new, |start| start.world.to_string()),
        show_bytes(run.bytes),
    ]);
    row
}

/// `failed (92)`
pub(super) fn state(run: &RunFolder) -> String {
    match &run.state {
        RunStatus::Failed { code: Some(code), .. } => format!("failed ({code})"),
        state => state.word().to_owned(),
    }
}

/// `, 87.0 s left`
fn left(run: &RunFolder) -> String {
    let number = |key: &str| run.of_spec(key).and_then(|text| text.parse().ok());
    let epochs = number("epochs").filter(|_| matches!(run.state, RunStatus::Running));
    let left = epochs.and_then(|epochs| run.course.seconds_left(epochs, number("train.max_steps")));
    left.map_or_else(String::new, |left| format!(", {} left", seconds(left)))
}

/// `3/12`
pub(super) fn epochs(run: &RunFolder) -> String {
    match (run.of_spec("epochs"), run.course.trained) {
        (Some(all), _) => format!("{}/{}", run.course.epochs, display::name(&all)),
        (None, true) => run.course.epochs.to_string(),
        (None, false) => String::new(),
    }
}

/// `2026-11-21 03:35` of RFC 3339, in UTC.
pub(super) fn started(time: &str) -> String {
    display::name(time.get(..16).unwrap_or(time)).replacen('T', " ", 1)
}

/// The value of any key.
pub(super) fn value(run: &RunFolder, key: &str) -> String {
    match run.fact(key) {
        None => String::new(),
        Some(Fact::Number(number)) if run.course.last(key).is_some() => metric_words(key, number),
        Some(Fact::Number(number)) if !FACTS.contains(&key) => {
            // As written in the spec: `1e-3`.
            display::name(&run.of_spec(key).unwrap_or_else(|| number.to_string()))
        }
        Some(Fact::Number(number)) if number.fract() == 0.0 => format!("{number}"),
        Some(Fact::Number(number)) => significant(number),
        Some(Fact::Text(text)) => display::name(&text),
    }
}

/// An array of objects.
pub fn list_json(runs: &[RunFolder]) -> Json {
    runs.iter().map(RunFolder::json).collect()
}
