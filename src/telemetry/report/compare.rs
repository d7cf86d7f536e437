//! A page about several runs: their charts over each other, their results, and what differs in spec and environment.

use super::records::Run;
use super::sections::{best, commit, last_step, prefers_larger, state, value_of};
use super::{escape, spec};
use crate::spec::{Values, values};
use crate::telemetry::chart::colour;
use crate::telemetry::numbers::seconds;
use crate::telemetry::provenance::Provenance;
use std::fmt::Write;

/// The part above the charts. Each run has the name under which it is shown.
pub(super) fn head(out: &mut String, runs: &[(&str, &Run)]) {
    let names: Vec<&str> = runs.iter().map(|(name, _)| *name).collect();
    let _ = write!(out, "<header><h1>{} runs</h1><p>{}</p></header>", runs.len(), escape(&names.join(" · ")));
    results(out, runs);
}

/// The part below the charts.
pub(super) fn rest(out: &mut String, runs: &[(&str, &Run)]) {
    spec_differences(out, runs);
    environments(out, runs);
}

fn results(out: &mut String, runs: &[(&str, &Run)]) {
    let mut metrics: Vec<&str> = Vec::new();
    for name in runs.iter().flat_map(|(_, run)| run.metrics()) {
        if !metrics.contains(&name) {
            metrics.push(name);
        }
    }
    let mut heads: Vec<String> = ["state", "epochs", "steps", "time in epochs"].map(str::to_owned).into();
    let mut rows: Vec<Vec<(String, bool)>> = runs
        .iter()
        .map(|(_, run)| {
            let time = seconds(run.epochs().map(|e| e.seconds).sum());
            let epochs = run.epochs().count().to_string();
            [state(run).1, epochs, last_step(run).to_string(), time].map(|cell| (cell, false)).into()
        })
        .collect();
    let mut column = |head: String, metric: &str, values: Vec<Option<f64>>| {
        if values.iter().all(Option::is_none) {
            return;
        }
        let of = |larger: bool| {
            let finite = values.iter().flatten().copied().filter(|v| v.is_finite());
            finite.reduce(if larger { f64::max } else { f64::min })
        };
        let winner = prefers_larger(metric).and_then(of).filter(|_| runs.len() > 1);
        heads.push(head);
        for (row, value) in rows.iter_mut().zip(&values) {
            let text = value.map_or("–".to_owned(), |value| value_of(metric, value));
            row.push((text, value.is_some() && *value == winner));
        }
    };
    for metric in metrics {
        let last = |of: &dyn Fn(&Run) -> Option<f64>| runs.iter().map(|(_, run)| of(run)).collect::<Vec<_>>();
        column(format!("train {metric}"), metric, last(&|run| run.epochs().last()?.train.get(metric)));
        let val = |run: &Run| run.epochs().rev().find_map(|e| e.val.as_ref()?.get(metric));
        column(format!("val {metric}"), metric, last(&val));
        column(format!("best val {metric}"), metric, last(&|run| Some(best(run, metric)?.1)));
    }
    out.push_str("<section class=\"first\"><h2>Results</h2><div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>run</th>");
    heads.iter().for_each(|head| {
        let _ = write!(out, "<th>{}</th>", escape(head));
    });
    out.push_str("</tr></thead><tbody>");
    for (i, ((name, _), row)) in runs.iter().zip(rows).enumerate() {
        let _ = write!(out, "<tr><th><span class=\"key {}\">{}</span></th>", colour(i), escape(name));
        for (cell, best) in row {
            let class = if best { " class=\"best\"" } else { "" };
            let _ = write!(out, "<td{class}>{}</td>", escape(&cell));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}

fn spec_differences(out: &mut String, runs: &[(&str, &Run)]) {
    let specs: Vec<Values> =
        runs.iter().map(|(_, run)| run.spec.as_deref().and_then(values).unwrap_or_default()).collect();
    table(
        out,
        "Differences of the specs",
        "The resolved specs are the same.",
        runs,
        &spec::differences(&specs),
    );
}

fn environments(out: &mut String, runs: &[(&str, &Run)]) {
    let all: Vec<Values> =
        runs.iter().map(|(_, run)| run.start().map(environment).unwrap_or_default()).collect();
    table(
        out,
        "Differences of the environments",
        "The environments are the same.",
        runs,
        &spec::differences(&all),
    );
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

fn table(
    out: &mut String,
    title: &str,
    none: &str,
    runs: &[(&str, &Run)],
    rows: &[(String, Vec<Option<String>>)],
) {
    let _ = write!(out, "<section><h2>{title}</h2>");
    if rows.is_empty() {
        let _ = write!(out, "<p>{none}</p></section>");
        return;
    }
    out.push_str("<div class=\"wide words\" tabindex=\"0\"><table><thead><tr><th></th>");
    for (i, (name, _)) in runs.iter().enumerate() {
        let _ = write!(out, "<th><span class=\"key {}\">{}</span></th>", colour(i), escape(name));
    }
    out.push_str("</tr></thead><tbody>");
    for (key, values) in rows {
        let _ = write!(out, "<tr><th>{}</th>", escape(key));
        for value in values {
            let _ = write!(out, "<td>{}</td>", escape(value.as_deref().unwrap_or("–")));
        }
        out.push_str("</tr>");
    }
    out.push_str("</tbody></table></div></section>");
}
