//! The sections of a page about one run, except its charts.

use super::escape;
use super::records::{Anatomy, RunRecords};
use super::table::{Cell, Wide};
use crate::epochs::{self, rate_of, rate_over};
use crate::events::{EndEvent, EpochEvent, Event, RunEnd};
use crate::provenance::{Git, Provenance};
use base::display::count;
use base::numbers::percent;
use base::numbers::{exponent, rate, seconds, significant};
use std::fmt::Write;

/// Largest number of rows in the table of epochs.
const MAX_EPOCHS: usize = 1000;

/// The end event, unless the run continued after it.
pub(super) fn ended(run: &RunRecords) -> Option<&EndEvent> {
    let last = run.events().rev().find_map(|e| match e {
        Event::End(end) => Some(Some(end)),
        // The run continued.
        Event::Step(_) | Event::Resume(_) | Event::Restart(_) | Event::Divergence(_) => Some(None),
        _ => None,
    });
    last.flatten()
}

/// The state of the run: a class of the style sheet, and a text.
pub(super) fn state(run: &RunRecords) -> (&'static str, String) {
    match ended(run) {
        Some(end) => match end.outcome() {
            RunEnd::Done => ("good", "done".to_owned()),
            RunEnd::Stopped => ("open", "stopped, resumable".to_owned()),
            RunEnd::Failed => ("bad", format!("{} (exit code {})", end.reason, end.exit_code)),
        },
        None => ("open", "not ended".to_owned()),
    }
}

pub(super) fn header(out: &mut String, run: &RunRecords) {
    let (class, state) = state(run);
    let _ = write!(
        out,
        "<header><h1>{}</h1><span class=\"state {class}\">{}</span>",
        escape(&run.name),
        escape(&state)
    );
    if let Some(run) = run.start() {
        let facts = format!("{} · {} · {}", run.started, count(run.world, "process"), run.backend);
        let _ = write!(out, "<p>{}</p>", escape(&facts));
    }
    out.push_str("</header>");
}

/// The last step of the run; not every step has an event.
pub(super) fn last_step(run: &RunRecords) -> u64 {
    let of_events = run.steps().last().map(|s| s.step).max(run.epochs().last().map(|e| e.step));
    of_events.max(ended(run).map(|e| e.step)).unwrap_or(0)
}

/// Whether larger values of a standard metric are better; `None` for others.
pub(super) fn prefers_larger(metric: &str) -> Option<bool> {
    match metric {
        "accuracy" | "top5" | "r2" => Some(true),
        "loss" | "mae" | "mse" | "perplexity" | "bits_per_byte" => Some(false),
        _ => None,
    }
}

/// The best value in validation and its epoch.
pub(super) fn best(run: &RunRecords, metric: &str) -> Option<(u64, f64)> {
    let (best, value) = epochs::best(run.epochs(), &format!("val.{metric}"), prefers_larger(metric)?)?;
    Some((best.epoch, value))
}

/// A metric's value in full.
pub(super) fn value_of(metric: &str, value: f64) -> String {
    match metric {
        "accuracy" | "top5" => format!("{:.2} %", 100.0 * value),
        _ => significant(value),
    }
}

/// The key figures at the top of the page.
pub(super) fn tiles(out: &mut String, run: &RunRecords) {
    let epochs: Vec<&EpochEvent> = run.epochs().collect();
    let mut tiles = vec![("epochs", epochs.len().to_string()), ("steps", last_step(run).to_string())];
    if let Some(loss) = epochs.last().map(|e| e.train.get("loss").unwrap_or(f64::NAN)) {
        tiles.push(("training loss", significant(loss)));
    }
    for (label, metric) in [("best val loss", "loss"), ("best val accuracy", "accuracy")] {
        if let Some((epoch, value)) = best(run, metric) {
            tiles.push((label, format!("{} <small>epoch {}</small>", value_of(metric, value), epoch + 1)));
        }
    }
    if !epochs.is_empty() {
        tiles.push(("time in epochs", seconds(epochs.iter().map(|e| e.seconds).sum())));
        let speed = rate_over(epochs.iter().copied());
        tiles.extend(speed.map(|speed| ("samples/s", rate(speed))));
        let per_sample = epochs.last().map(|epoch| epoch.per_sample());
        let rates = per_sample.zip(speed).map(|(per_sample, speed)| per_sample.at(speed)).unwrap_or_default();
        tiles.extend(rates.tokens.map(|tokens| ("tokens/s", rate(tokens))));
        tiles.extend(rates.flops.map(|flops| ("model GFLOP/s", rate(flops / 1e9))));
        tiles.extend(rates.mfu.map(|mfu| ("MFU", percent(mfu))));
    }
    out.push_str("<dl class=\"tiles\">");
    for (label, value) in tiles {
        let _ = write!(out, "<div><dt>{label}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
}

/// By how much of its work the slowest rank exceeds the median: ranks that share a machine differ by a little.
const SLOWER: f64 = 1.05;

/// The mean time of each phase by rank. The slowest rank is the one with the most work besides waiting, if that is clearly more than the others':
/// they wait for it, in the communication and outside of steps (evaluations).
pub(super) fn ranks(out: &mut String, run: &RunRecords) {
    let Anatomy { phases, sums, summed, .. } = &run.anatomy;
    let own = |rank: &[f64]| -> f64 {
        let own = phases.iter().zip(rank).filter(|(name, _)| !["comm", "other"].contains(name));
        own.map(|(_, seconds)| seconds).sum()
    };
    let slowest = (0..sums.len()).max_by(|a, b| own(&sums[*a]).total_cmp(&own(&sums[*b])));
    let mut works: Vec<f64> = sums.iter().map(|rank| own(rank)).collect();
    works.sort_by(f64::total_cmp);
    // The lower one of two: of two ranks, one may be the slowest.
    let median = works.get(works.len().saturating_sub(1) / 2).copied().unwrap_or(0.0);
    let slowest = slowest.filter(|rank| sums.len() > 1 && own(&sums[*rank]) > SLOWER * median);
    if sums.is_empty() {
        return;
    }
    out.push_str(
        "<section><h2>Time per step, by rank</h2><p>Mean milliseconds. A rank that has 5 % more work besides waiting than the median \
         is marked; the others wait for it in the communication.</p><div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>rank</th>",
    );
    phases.iter().for_each(|name| {
        let _ = write!(out, "<th>{}</th>", escape(name));
    });
    out.push_str("<th></th></tr></thead><tbody>");
    for (rank, row) in sums.iter().enumerate() {
        let slow = slowest == Some(rank);
        let _ = write!(out, "<tr{}><td>{rank}</td>", if slow { " class=\"slow\"" } else { "" });
        row.iter().for_each(|seconds| {
            let _ = write!(out, "<td>{}</td>", significant(1e3 * seconds / *summed as f64));
        });
        let _ = write!(out, "<td>{}</td></tr>", if slow { "slowest" } else { "" });
    }
    out.push_str("</tbody></table></div></section>");
}

pub(super) fn epochs(out: &mut String, run: &RunRecords) {
    let Some(first) = run.epochs().next() else { return };
    let train: Vec<&str> = first.train.iter().map(|(n, _)| n).collect();
    let val = run.epochs().find_map(|e| e.val.as_ref());
    let val: Vec<&str> = val.map_or(Vec::new(), |v| v.iter().map(|(n, _)| n).collect());
    let count = run.epochs().count();
    let stride = count.div_ceil(MAX_EPOCHS);
    out.push_str("<section><h2>Epochs</h2>");
    if stride > 1 {
        let _ = write!(out, "<p>One of every {stride}, up to the last.</p>");
    }
    let mut table = Wide::default();
    table.column("epoch");
    for (split, names) in [("train", &train), ("val", &val)] {
        names.iter().for_each(|name| table.column(&format!("{split} {name}")));
    }
    ["lr", "seconds", "samples/s", "data wait"].iter().for_each(|head| table.column(head));
    for (_, e) in run.epochs().enumerate().filter(|(i, _)| (count - 1 - i).is_multiple_of(stride)) {
        let mut row = vec![(e.epoch + 1).to_string()];
        for (metrics, names) in [(Some(&e.train), &train), (e.val.as_ref(), &val)] {
            let value = |name: &&str| {
                metrics.and_then(|m| m.get(name)).map_or("–".to_owned(), |value| value_of(name, value))
            };
            row.extend(names.iter().map(value));
        }
        let per_second = rate_of(e.trained());
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
        let wait = or_none(per_second.map(|_| percent(e.data_wait)));
        row.extend([exponent(e.lr), format!("{:.1}", e.seconds), or_none(per_second.map(rate)), wait]);
        table.rows.push(("", row.iter().map(|text| Cell::text(text)).collect()));
    }
    table.write(out);
    out.push_str("</section>");
}

/// Restarts, resumes and ends; left out for a run without interruption.
pub(super) fn history(out: &mut String, run: &RunRecords) {
    let line = |e: &Event| match e {
        Event::Restart(r) => Some(format!("attempt {}: {}", r.attempt, r.reason)),
        Event::Resume(r) => {
            Some(format!("resumed at step {} from {} on {}", r.step, r.path, count(r.world, "process")))
        }
        Event::End(e) => Some(format!("ended at step {}: {}", e.step, e.reason)),
        Event::Divergence(e) => Some(format!("{}: {} differs after step {}", e.words(), e.tensor, e.step)),
        _ => None,
    };
    let lines: Vec<String> = run.events().filter_map(line).collect();
    if lines.len() > 1 {
        out.push_str("<section><h2>History</h2><ol>");
        lines.iter().for_each(|line| {
            let _ = write!(out, "<li>{}</li>", escape(line));
        });
        out.push_str("</ol></section>");
    }
}

pub(super) fn commit(git: Option<&Git>) -> String {
    match git {
        None => "not in a repository".to_owned(),
        Some(git) => match git.dirty {
            Some(true) => format!("{} with uncommitted changes", git.commit),
            Some(false) => git.commit.clone(),
            None => format!("{} (state unknown)", git.commit),
        },
    }
}

pub(super) fn provenance(out: &mut String, run: &RunRecords) {
    let Some(run) = run.start() else { return };
    let rustc = run.versions.rustc.as_ref().map_or(String::new(), |v| format!(", {v}"));
    let rows = [
        ("started", run.started.clone()),
        ("command", run.argv.join(" ")),
        ("commit", commit(run.git.as_ref())),
        ("spec hash", run.spec_hash.clone()),
        ("versions", format!("ddp-run {}, burn {}{rustc}", run.versions.ddp_run, run.versions.burn)),
        ("devices", run.devices.join(", ")),
        ("host", format!("{} ({}, {}, {})", run.host.name, run.host.os, run.host.kernel, run.host.arch)),
        ("cpu", format!("{}, {} cores", run.host.cpu, run.host.cores)),
    ];
    out.push_str("<section><h2>Provenance</h2><table class=\"facts\"><tbody>");
    for (label, value) in rows {
        let _ = write!(out, "<tr><th>{label}</th><td>{}</td></tr>", escape(&value));
    }
    out.push_str("</tbody></table></section>");
}

pub(super) fn job(out: &mut String, run: &RunRecords) {
    let none = std::collections::BTreeMap::new();
    if let Some(spec) = &run.spec {
        super::spec_section::section(out, spec, run.start().map_or(&none, |start: &Provenance| &start.set));
    }
}
