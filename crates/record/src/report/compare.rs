//! A page about several runs: their charts over each other, their results, and what differs in spec and environment.

use super::records::RunRecords;
use super::run_figures::metric_names;
use super::sections::{best, commit, last_step, prefers_larger, state, value_of};
use super::table::{Cell, Wide};
use super::{escape, spec_section};
use crate::chart::colour;
use crate::comparable::Comparable;
use crate::provenance::Provenance;
use base::numbers::seconds;
use spec::{Values, values};
use std::fmt::Write;

/// Up to this number, runs are the columns of what differs.
const SIDE_BY_SIDE: usize = 5;

/// The part above the charts. Each run has the name under which it is shown.
pub(super) fn head(out: &mut String, runs: &[(&str, &RunRecords)]) {
    let names: Vec<&str> = runs.iter().map(|(name, _)| *name).collect();
    let _ = write!(out, "<header><h1>{} runs</h1><p>{}</p></header>", runs.len(), escape(&names.join(" · ")));
    results(out, runs);
}

/// Whose values compare.
pub(super) fn comparable(runs: &[(&str, &RunRecords)]) -> Comparable {
    let specs: Vec<Option<Values>> =
        runs.iter().map(|(_, run)| run.spec.as_deref().and_then(values)).collect();
    let named: Vec<(&str, Option<&Values>)> =
        runs.iter().zip(&specs).map(|((name, _), spec)| (*name, spec.as_ref())).collect();
    Comparable::new(&named)
}

/// The part below the charts.
pub(super) fn rest(out: &mut String, runs: &[(&str, &RunRecords)]) {
    let specs = runs.iter().map(|(_, run)| run.spec.as_deref().and_then(values).unwrap_or_default());
    table(out, "Differences of the specs", "The resolved specs are the same.", runs, specs.collect());
    let all = runs.iter().map(|(_, run)| run.start().map(environment).unwrap_or_default());
    table(out, "Differences of the environments", "The environments are the same.", runs, all.collect());
}

fn results(out: &mut String, runs: &[(&str, &RunRecords)]) {
    let comparable = comparable(runs);
    let mut table = Wide::default();
    table.column("run");
    ["state", "epochs", "steps", "time in epochs"].iter().for_each(|head| table.column(head));
    table.rows = runs.iter().enumerate().map(|(i, run)| ("", begun(i, run))).collect();
    let mut column = |head: &str, metric: &str, first: bool, values: Vec<Option<f64>>| {
        if values.iter().all(Option::is_none) {
            return false;
        }
        let winners = winners(&comparable, metric, &values);
        let head = format!("{head} {metric}");
        if first {
            table.column(&head)
        } else {
            table.joined(&head)
        }
        for (((_, row), value), winner) in table.rows.iter_mut().zip(&values).zip(winners) {
            let text = value.map_or("–".to_owned(), |value| value_of(metric, value));
            row.push(Cell::text(&text).best_if(value.is_some() && *value == winner));
        }
        true
    };
    for metric in metric_names(runs) {
        let last =
            |of: &dyn Fn(&RunRecords) -> Option<f64>| runs.iter().map(|(_, run)| of(run)).collect::<Vec<_>>();
        let train = column("train", metric, true, last(&|run| run.epochs().last()?.train.get(metric)));
        let val = |run: &RunRecords| run.epochs().rev().find_map(|e| e.val.as_ref()?.get(metric));
        column("val", metric, !train, last(&val));
        column("best val", metric, false, last(&|run| Some(best(run, metric)?.1)));
    }
    out.push_str("<section class=\"first\"><h2>Results</h2>");
    comparable.why().iter().for_each(|why| {
        let _ = write!(out, "<p>Kept apart, because {}.</p>", escape(why));
    });
    table.write(out);
    out.push_str("</section>");
}

/// The name of a run, and how far it is.
fn begun(i: usize, (name, run): &(&str, &RunRecords)) -> Vec<Cell> {
    let epochs = run.epochs().count();
    let time = match epochs {
        0 => "–".to_owned(),
        _ => seconds(run.epochs().map(|e| e.seconds).sum()),
    };
    let facts = [state(run).1, epochs.to_string(), last_step(run).to_string(), time];
    std::iter::once(Cell::html(key(i, name), name.chars().count() + KEY).head())
        .chain(facts.iter().map(|text| Cell::text(text)))
        .collect()
}

/// The characters for which a key's line has room.
const KEY: usize = 3;

/// A run's name with its colour.
fn key(i: usize, name: &str) -> String {
    format!("<span class=\"key {}\">{}</span>", colour(i), escape(name))
}

/// For each run, the best of the values that compare with its own; `None` if there is no other.
fn winners(comparable: &Comparable, metric: &str, values: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut winners = vec![None; values.len()];
    let Some(larger) = prefers_larger(metric) else { return winners };
    for members in comparable.members(metric).into_iter().filter(|members| members.len() > 1) {
        let finite = members.iter().filter_map(|run| values[*run]).filter(|value| value.is_finite());
        let best = finite.reduce(if larger { f64::max } else { f64::min });
        members.into_iter().for_each(|run| winners[run] = best);
    }
    winners
}

/// The parts of a start's environment that may differ between runs.
fn environment(start: &Provenance) -> Values {
    let host = &start.host;
    let rows = [
        ("commit", commit(start.git.as_ref())),
        ("ddp-run", start.versions.ddp_run.clone()),
        ("burn", start.versions.burn.clone()),
        ("rustc", start.versions.rustc.clone().unwrap_or_default()),
        ("processes", start.world.to_string()),
        ("devices", start.devices.join(", ")),
        ("backend", start.backend.clone()),
        ("launcher", start.launcher.clone()),
        ("host", host.name.clone()),
        ("system", format!("{}, {}, {}", host.os, host.kernel, host.arch)),
        ("cpu", format!("{}, {} cores", host.cpu, host.cores)),
    ];
    rows.map(|(key, value)| (key.to_owned(), value)).into()
}

/// What differs between the values of each run.
fn table(out: &mut String, title: &str, none: &str, runs: &[(&str, &RunRecords)], all: Vec<Values>) {
    let rows = spec_section::differences(&all);
    let _ = write!(out, "<section><h2>{title}</h2>");
    if rows.is_empty() {
        let _ = write!(out, "<p>{none}</p></section>");
        return;
    }
    let mut table = Wide::of_words();
    let texts = |values: &[Option<String>]| -> Vec<Cell> {
        values.iter().map(|value| Cell::text(value.as_deref().unwrap_or("–"))).collect()
    };
    table.column("");
    // Many runs are rows: the columns of a page are few.
    if runs.len() <= SIDE_BY_SIDE {
        runs.iter().enumerate().for_each(|(i, (name, _))| table.column_of(key(i, name), name));
        table.rows.extend(rows.iter().map(|(name, values)| {
            ("", std::iter::once(Cell::text(name).head()).chain(texts(values)).collect())
        }));
    } else {
        rows.iter().for_each(|(name, _)| table.column(name));
        table.rows.extend(runs.iter().enumerate().map(|(i, (name, _))| {
            let of_run: Vec<Option<String>> = rows.iter().map(|(_, values)| values[i].clone()).collect();
            let name = Cell::html(key(i, name), name.chars().count() + KEY).head();
            ("", std::iter::once(name).chain(texts(&of_run)).collect())
        }));
    }
    table.write(out);
    out.push_str("</section>");
}
