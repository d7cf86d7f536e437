//! `report.html`: a self-contained page about a run, generated from `metrics.jsonl`, `run.json` and `job.toml`. It has
//! no scripts and loads nothing (its content-security policy forbids both), so it can be sent by mail.

use super::chart::{self, Axis, Chart, Look, Series};
use super::events::{EndEvent, EpochEvent, Event, StepEvent};
use super::numbers::{exponent, seconds, significant};
use super::provenance::{self, Provenance};
use super::read_events;
use crate::error::{ExitCode, Result};
use crate::show::count;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const STYLE: &str = include_str!("report.css");
/// Per line; more of them overlap.
const MAX_MARKERS: usize = 60;

pub(super) fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("report.html")
}

/// Writes `report.html` to the run's folder and returns its path.
pub fn write(run_dir: &Path) -> Result<PathBuf> {
    write_events(run_dir, &read_events(&run_dir.join("metrics.jsonl"))?)
}

/// As [`write`], with the events of the run.
pub fn write_events(run_dir: &Path, events: &[Event]) -> Result<PathBuf> {
    let run = run_dir.join("run.json");
    let provenance = if run.exists() { Some(provenance::read(&run)?.latest) } else { None };
    let spec = std::fs::read_to_string(run_dir.join("job.toml")).ok();
    let name = run_dir.file_name().map_or_else(|| "run".into(), |n| n.to_string_lossy().into_owned());
    let page = render(&name, events, provenance.as_ref(), spec.as_deref());
    let path = path(run_dir);
    crate::files::replace(&path, page.as_bytes())?;
    Ok(path)
}

/// Renders the page. `name` is used if there is no provenance.
pub fn render(name: &str, events: &[Event], run: Option<&Provenance>, spec: Option<&str>) -> String {
    let name = run.map_or(name, |r| &r.name);
    let steps: Vec<&StepEvent> =
        events.iter().filter_map(|e| if let Event::Step(s) = e { Some(s) } else { None }).collect();
    let epochs: Vec<&EpochEvent> =
        events.iter().filter_map(|e| if let Event::Epoch(s) = e { Some(s) } else { None }).collect();
    let mut body = String::new();
    header(&mut body, name, events, run);
    tiles(&mut body, &steps, &epochs, ended(events));
    charts(&mut body, &steps, &epochs);
    epoch_table(&mut body, &epochs);
    history(&mut body, events);
    if let Some(run) = run {
        provenance_table(&mut body, run);
    }
    if let Some(spec) = spec {
        let _ = write!(body, "<section><h2>Job</h2><pre>{}</pre></section>", escape(spec));
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} · ddp-run</title><style>{}{STYLE}</style></head><body><main>{body}</main></body></html>\n",
        escape(name),
        chart::STYLE
    )
}

/// The end event, unless the run continued after it.
fn ended(events: &[Event]) -> Option<&EndEvent> {
    let last = events.iter().rev().find_map(|e| match e {
        Event::End(end) => Some(Some(end)),
        // The run continued.
        Event::Step(_) | Event::Resume(_) | Event::Restart(_) => Some(None),
        _ => None,
    });
    last.flatten()
}

fn header(out: &mut String, name: &str, events: &[Event], run: Option<&Provenance>) {
    let (class, state) = match ended(events) {
        Some(end) => match ExitCode::from_status(end.exit_code.into()) {
            Some(ExitCode::Done) => ("good", "done".to_owned()),
            Some(ExitCode::Stopped) => ("open", "stopped, resumable".to_owned()),
            _ => ("bad", format!("{} (exit code {})", end.reason, end.exit_code)),
        },
        None => ("open", "not ended".to_owned()),
    };
    let _ = write!(
        out,
        "<header><h1>{}</h1><span class=\"state {class}\">{}</span>",
        escape(name),
        escape(&state)
    );
    if let Some(run) = run {
        let facts = format!("{} · {} · {}", run.started, count(run.world, "process"), run.backend);
        let _ = write!(out, "<p>{}</p>", escape(&facts));
    }
    out.push_str("</header>");
}

/// The key figures at the top of the page.
fn tiles(out: &mut String, steps: &[&StepEvent], epochs: &[&EpochEvent], end: Option<&EndEvent>) {
    let mut tiles = Vec::new();
    // Not every step has an event.
    let last_step = steps.last().map(|s| s.step).max(epochs.last().map(|e| e.step)).max(end.map(|e| e.step));
    tiles.push(("epochs", epochs.len().to_string()));
    tiles.push(("steps", last_step.unwrap_or(0).to_string()));
    if let Some(loss) = epochs.last().map(|e| e.train.get("loss").unwrap_or(f64::NAN)) {
        tiles.push(("training loss", significant(loss)));
    }
    let best = |name: &str, better: fn(f64, f64) -> bool| {
        let values = epochs.iter().filter_map(|e| Some((e.epoch, e.val.as_ref()?.get(name)?)));
        values.filter(|(_, v)| v.is_finite()).reduce(|a, b| if better(b.1, a.1) { b } else { a })
    };
    let of_epoch = |epoch: u64, text: String| format!("{text} <small>epoch {}</small>", epoch + 1);
    if let Some((epoch, loss)) = best("loss", |a, b| a < b) {
        tiles.push(("best val loss", of_epoch(epoch, significant(loss))));
    }
    if let Some((epoch, accuracy)) = best("accuracy", |a, b| a > b) {
        tiles.push(("best val accuracy", of_epoch(epoch, format!("{:.2} %", 100.0 * accuracy))));
    }
    if !epochs.is_empty() {
        tiles.push(("time in epochs", seconds(epochs.iter().map(|e| e.seconds).sum())));
        let mean = epochs.iter().map(|e| e.samples_per_s).sum::<f64>() / epochs.len() as f64;
        tiles.push(("samples/s", format!("{mean:.0}")));
    }
    out.push_str("<dl class=\"tiles\">");
    for (label, value) in tiles {
        let _ = write!(out, "<div><dt>{label}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
}

fn charts(out: &mut String, steps: &[&StepEvent], epochs: &[&EpochEvent]) {
    let per_step = |f: fn(&StepEvent) -> f64| steps.iter().map(|s| (s.step as f64, f(s))).collect::<Vec<_>>();
    out.push_str("<section class=\"charts\">");
    let loss = per_step(|s| s.loss);
    let smooth = chart::smoothed(&loss);
    let series = if loss.len() > 30 {
        vec![Series::new("each step", Look::Faint, loss), Series::new("smoothed", Look::Line(1), smooth)]
    } else {
        vec![Series::new("training", Look::Line(0), loss)]
    };
    let (step, epoch) =
        (counted("step", |v| format!("step {v}")), counted("epoch", |v| format!("epoch {v}")));
    let value = counted("", significant);
    let mut draw = |title: &str, x, series| Chart::new(title, x, value, series).figure(out);
    draw("Training loss", step, series);
    draw("Learning rate", step, vec![Series::new("lr", Look::Line(0), per_step(|s| s.lr))]);

    let mut names: Vec<&str> = Vec::new();
    for (name, _) in epochs.iter().flat_map(|e| e.train.iter().chain(e.val.iter().flat_map(|v| v.iter()))) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let look = if epochs.len() <= MAX_MARKERS { Look::Marked } else { Look::Line };
    for name in names {
        let points = |of: fn(&EpochEvent, &str) -> Option<f64>| {
            epochs.iter().filter_map(|e| Some(((e.epoch + 1) as f64, of(e, name)?))).collect::<Vec<_>>()
        };
        let series = vec![
            Series::new("training", look(0), points(|e, name| e.train.get(name))),
            Series::new("validation", look(1), points(|e, name| e.val.as_ref()?.get(name))),
        ];
        draw(&title_of(name), epoch, series);
    }
    let speed = per_step(|s| s.samples_per_s);
    draw("Samples per second", step, vec![Series::new("samples/s", Look::Line(0), speed)]);
    out.push_str("</section>");
}

fn counted(unit: &'static str, text: fn(f64) -> String) -> Axis {
    Axis { log: false, unit, tick: chart::label, text }
}

fn title_of(metric: &str) -> String {
    let words = metric.replace(['_', '-'], " ");
    let mut letters = words.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{} per epoch", letters.as_str())
}

fn epoch_table(out: &mut String, epochs: &[&EpochEvent]) {
    let Some(first) = epochs.first() else { return };
    let train: Vec<&str> = first.train.iter().map(|(n, _)| n).collect();
    let val: Vec<&str> =
        epochs.iter().find_map(|e| e.val.as_ref()).map_or(Vec::new(), |v| v.iter().map(|(n, _)| n).collect());
    out.push_str("<section><h2>Epochs</h2><div class=\"wide\"><table><thead><tr><th>epoch</th>");
    for (split, names) in [("train", &train), ("val", &val)] {
        for name in names {
            let _ = write!(out, "<th>{split} {}</th>", escape(name));
        }
    }
    out.push_str("<th>lr</th><th>seconds</th><th>samples/s</th><th>data wait</th></tr></thead><tbody>");
    for e in epochs {
        let _ = write!(out, "<tr><td>{}</td>", e.epoch + 1);
        for (metrics, names) in [(Some(&e.train), &train), (e.val.as_ref(), &val)] {
            for name in names {
                let value = metrics.and_then(|m| m.get(name)).map_or("–".to_owned(), significant);
                let _ = write!(out, "<td>{value}</td>");
            }
        }
        let wait = 100.0 * e.data_wait;
        let lr = exponent(e.lr);
        let _ = write!(
            out,
            "<td>{lr}</td><td>{:.1}</td><td>{:.0}</td><td>{wait:.1} %</td></tr>",
            e.seconds, e.samples_per_s
        );
    }
    out.push_str("</tbody></table></div></section>");
}

/// Restarts, resumes and ends; left out for a run without interruption.
fn history(out: &mut String, events: &[Event]) {
    let lines: Vec<String> = events
        .iter()
        .filter_map(|e| match e {
            Event::Restart(r) => Some(format!("attempt {}: {}", r.attempt, r.reason)),
            Event::Resume(r) => {
                Some(format!("resumed at step {} from {} on {}", r.step, r.path, count(r.world, "process")))
            }
            Event::End(e) => Some(format!("ended at step {}: {}", e.step, e.reason)),
            _ => None,
        })
        .collect();
    if lines.len() > 1 {
        out.push_str("<section><h2>History</h2><ol>");
        lines.iter().for_each(|line| {
            let _ = write!(out, "<li>{}</li>", escape(line));
        });
        out.push_str("</ol></section>");
    }
}

fn provenance_table(out: &mut String, run: &Provenance) {
    let git = match &run.git {
        None => "not in a repository".to_owned(),
        Some(git) => match git.dirty {
            Some(true) => format!("{} with uncommitted changes", git.commit),
            Some(false) => git.commit.clone(),
            None => format!("{} (state unknown)", git.commit),
        },
    };
    let rustc = run.versions.rustc.as_ref().map_or(String::new(), |v| format!(", {v}"));
    let rows = [
        ("started", run.started.clone()),
        ("command", run.argv.join(" ")),
        ("commit", git),
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

pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
