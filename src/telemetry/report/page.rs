//! The frame of a page: style, charts, data and script. It loads nothing (small pictures are in it), and the one script that its content-security
//! policy allows, by its hash, is its own; without it the page shows static drawings of the same charts.

use super::escape;
use super::figures::{Figure, PageData};
use super::records::Run;
use super::timeline::{Kind, Mark};
use crate::telemetry::chart;
use data_encoding::BASE64;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const STYLE: &str = include_str!("report.css");
const SCRIPT: &str = include_str!("report.js");

/// The page with these contents. `body` has the static charts of `figures`, in their order.
pub(super) fn whole(
    title: &str,
    body: &str,
    runs: &[(&str, &Run)],
    figures: &[Figure],
    marks: &[Mark],
) -> String {
    let (mut policy, mut scripts) = (String::new(), String::new());
    // Texts of users are escaped: only a picture of our own begins so.
    let images = if body.contains("<img ") { "img-src data:; " } else { "" };
    if !figures.is_empty() {
        let hash = BASE64.encode(&Sha256::digest(SCRIPT));
        policy = format!("; script-src 'sha256-{hash}'");
        scripts = format!(
            "<script type=\"application/json\" id=\"data\">{}</script><script>{SCRIPT}</script>",
            data(runs, figures, marks)
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {images}style-src 'unsafe-inline'{policy}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">\
         <title>{} · ddp-run</title><style>{}{STYLE}</style></head><body><main>{body}</main>{scripts}</body></html>\n",
        escape(title),
        chart::STYLE
    )
}

/// As JSON. Names come from files of users: none of them may end the script element.
fn data(runs: &[(&str, &Run)], figures: &[Figure], marks: &[Mark]) -> String {
    let data = PageData::new(runs, figures, marks);
    // Plain numbers and texts always have a JSON form.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

/// Writes the section of charts.
pub(super) fn charts(out: &mut String, figures: &[Figure], marks: &[Mark], runs: usize) {
    if figures.is_empty() {
        return;
    }
    let kinds: Vec<Kind> =
        Kind::ALL.into_iter().filter(|kind| marks.iter().any(|m| m.kind == *kind)).collect();
    out.push_str("<section>");
    if !kinds.is_empty() {
        out.push_str("<p class=\"marks\">");
        for kind in kinds {
            let word = match kind {
                Kind::Checkpoint => "checkpoint",
                Kind::End => "ended",
                Kind::Resume => "resumed",
                Kind::Restart => "restarted",
                Kind::Resize => "resized",
            };
            let class = if runs > 1 { "" } else { kind.name() };
            let _ = write!(
                out,
                "<span><svg viewBox=\"-6 -6 12 12\" aria-hidden=\"true\"><path class=\"mark {class}\" d=\"{}\"/></svg>{word}</span>",
                kind.glyph()
            );
        }
        out.push_str("</p>");
    }
    out.push_str("<div class=\"charts\">");
    // Rules of many runs over each other could not be told apart.
    let marks = if runs > 1 { &[] } else { marks };
    figures.iter().for_each(|figure| figure.draw(out, marks));
    out.push_str("</div></section>");
}
