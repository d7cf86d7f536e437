//! The pages: the table of all runs, and the report of one run or several, which is updated live.

use super::shared::{BoardShared, Id};
use super::stream::{place_of, read};
use crate::runs::{Listing, RunFolder, RunStatus, list_table};
use base::display;
use base::error::Result;
use record::report::{Frame, LiveRun, escape, hash, live_page, script_hash, style};
use serde_json::{Value as Json, json};

const STYLE: &str = include_str!("board.css");
const SCRIPT: &str = include_str!("board.js");
const LIVE: &str = include_str!("live.js");

/// A page, and the content-security policy that it is sent with.
pub(super) struct Html {
    pub text: String,
    pub policy: String,
}

/// Allows the page's own scripts, and requests to this server.
fn policy(scripts: &str) -> String {
    format!(
        "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    )
}

/// The page of the table, without runs: its script requests them.
pub(super) fn table_page() -> Html {
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><link rel=\"icon\" href=\"data:,\">\
         <title>runs · ddp-run</title><style>{}{STYLE}</style></head><body><main>\
         <header><h1>Runs</h1><span id=\"count\" role=\"status\"></span><span id=\"connection\"></span></header>\
         <div class=\"bar\"><label>filter <input id=\"filter\" type=\"search\" autocomplete=\"off\" spellcheck=\"false\" \
         placeholder=\"state=running val.accuracy&gt;=0.9 optimizer.lr&lt;0.1\"></label><a id=\"compare\">choose runs to compare</a></div>\
         <p id=\"warnings\"></p><div class=\"wide\"><table id=\"table\"></table></div>\
         <noscript><p>This page needs scripts. `ddp-run runs list` prints the table.</p></noscript></main>\
         <script>{SCRIPT}</script></body></html>\n",
        style()
    );
    Html { text, policy: policy(&hash(SCRIPT)) }
}

/// The rows that `listing` keeps, worded as `ddp-run runs list` words them.
pub(super) fn table_json(shared: &BoardShared, listing: &Listing) -> Json {
    let table = shared.table();
    let (total, ids): (usize, Vec<String>) = (table.runs.len(), table.runs.iter().map(id_of).collect());
    let last = one_metric(&table.runs);
    let (runs, mut warnings) = listing.select(table.runs);
    warnings.extend(table.problems);
    let listed = list_table(&runs, listing);
    let column = |column: &base::display::Column| {
        let key = match column.head.as_str() {
            "LAST" => last.as_deref(),
            head => key_of(head),
        };
        json!({ "head": column.head, "key": key, "right": column.right })
    };
    let row = |(run, cells): (&RunFolder, Vec<String>)| {
        let problems = run.problems.iter().map(|why| format!("{}: {}", run.label(), display::piece(why)));
        let (kind, reason) = state(run);
        json!({ "id": id_of(run), "state": run.state.word(), "kind": kind, "reason": reason, "cells": cells,
            "problems": problems.collect::<Vec<_>>() })
    };
    json!({
        "columns": listed.columns.iter().map(column).collect::<Vec<_>>(),
        "rows": runs.iter().zip(listed.rows).map(row).collect::<Vec<_>>(),
        "warnings": warnings.iter().map(|why| display::piece(why)).collect::<Vec<_>>(),
        "total": total,
        "ids": ids,
        "reading": table.reading.map(|(done, all)| format!("{done} of {all}")),
    })
}

fn id_of(run: &RunFolder) -> String {
    Id::new(&run.folder).as_str().to_owned()
}

/// The class of a state in the style sheet, and why the run failed.
fn state(run: &RunFolder) -> (&'static str, Option<String>) {
    match &run.state {
        RunStatus::Done => ("good", None),
        RunStatus::Failed { reason, .. } => ("bad", Some(display::piece(reason))),
        RunStatus::Running | RunStatus::Stopped | RunStatus::Untrained | RunStatus::Removing => {
            ("open", None)
        }
    }
}

/// By what a column is sorted. Columns of named keys have those as their heads.
fn key_of(head: &str) -> Option<&str> {
    Some(match head {
        "RUN" => "folder",
        "STATE" => "state",
        "EPOCHS" => "epoch",
        "BEST" => "best",
        "STARTED" => "started",
        "TIME" => "seconds",
        "STEPS" => "step",
        "SAMPLES/S" => "samples_per_s",
        "RANKS" => "world",
        "SIZE" => "bytes",
        key => key,
    })
}

/// The metric that ranks the checkpoints of all these runs, if it is the same.
fn one_metric(runs: &[RunFolder]) -> Option<String> {
    let mut all = runs.iter().filter_map(|run| run.by.as_ref());
    let first = &all.next()?.metric;
    all.all(|by| by.metric == *first).then(|| first.clone())
}

/// The report of a run, or of several over each other; `None` if one of them is not there.
///
/// # Errors
/// A run can't be read.
pub(super) fn runs_page(shared: &BoardShared, ids: &[Id]) -> Result<Option<Html>> {
    let mut pages = Vec::new();
    for id in ids {
        let (Some(label), Some(page)) = (shared.label(id), shared.page(id)?) else { return Ok(None) };
        pages.push((label, page));
    }
    let runs: Vec<_> = pages.iter().map(|(label, page)| (label.as_str(), read(page))).collect();
    let runs: Vec<(&str, &LiveRun)> = runs.iter().map(|(label, run)| (*label, &**run)).collect();
    let places: Vec<_> = runs.iter().map(|(_, run)| run.place()).collect();
    let (up, events) = match ids {
        [_] => ("../../", "events".to_owned()),
        ids => {
            let all: Vec<String> = ids.iter().map(|id| format!("run={}", id.as_str())).collect();
            ("../", format!("events?{}", all.join("&")))
        }
    };
    let folders: Vec<&str> = runs.iter().map(|(label, _)| *label).collect();
    let before = format!(
        "<p class=\"top\"><span><a href=\"{up}\">all runs</a> · {}</span><span><span id=\"states\"></span> <span id=\"connection\"></span></span></p>",
        escape(&folders.join(" · "))
    );
    // Nothing of it ends the element: places are numbers.
    let data = json!({ "events": events, "from": place_of(&places) }).to_string();
    let frame = Frame { before: &before, style: STYLE, script: LIVE, data: &data };
    let text = live_page(&runs, &frame);
    Ok(Some(Html { text, policy: policy(&format!("{} {}", script_hash(), hash(LIVE))) }))
}
