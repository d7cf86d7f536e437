//! The frame of a page: style, charts, data and script. It loads nothing (small pictures are in it), and the one script that its content-security
//! policy allows, by its hash, is its own; without it the page shows static drawings of the same charts.

use super::figures::{Figure, PageData};
use super::records::RunRecords;
use super::timeline::{Mark, MarkKind, told_apart};
use super::{MARK, escape};
use crate::chart;
use data_encoding::BASE64;
use sha2::{Digest, Sha256};
use std::fmt::Write;

const STYLE: &str = concat!(include_str!("report.css"), include_str!("evaluations.css"));
const SCRIPT: &str = include_str!("report.js");

/// What a page of running runs has in addition.
#[cfg_attr(not(feature = "board"), allow(dead_code, reason = "only the board has such pages"))]
pub struct Frame<'a> {
    /// The first of the page, as HTML.
    pub before: &'a str,
    /// The style sheet of the page's additions.
    pub style: &'a str,
    /// Runs after the script of the charts, and may request more from the server.
    pub script: &'a str,
    /// Its data, as JSON that ends no element.
    pub data: &'a str,
}

/// The styles of all pages, charts included.
#[cfg(feature = "board")]
pub fn style() -> String {
    format!("{}{STYLE}", chart::STYLE)
}

/// The hash of a script by which a content-security policy names it.
pub fn hash(script: &str) -> String {
    format!("'sha256-{}'", BASE64.encode(&Sha256::digest(script)))
}

/// The hash of the script of all charts.
#[cfg(feature = "board")]
pub fn script_hash() -> String {
    hash(SCRIPT)
}

/// The page with these contents. `body` has the static charts of `figures`, in their order.
pub(super) fn whole(
    title: &str,
    body: &str,
    runs: &[(&str, &RunRecords)],
    figures: &[Figure],
    marks: &[Mark],
    frame: Option<&Frame<'_>>,
) -> String {
    let (mut policy, mut scripts) = (String::new(), String::new());
    // Texts of users are escaped: only a picture of our own begins so.
    let images = if frame.is_some() || body.contains("<img ") { "img-src data:; " } else { "" };
    if !figures.is_empty() || frame.is_some() {
        policy = format!("; script-src {}", hash(SCRIPT));
        scripts = format!(
            "<script type=\"application/json\" id=\"data\">{}</script><script>{SCRIPT}</script>",
            data(runs, figures, marks)
        );
    }
    let mut links = "";
    if let Some(Frame { script, data, .. }) = frame {
        // Browsers ask for an icon where none is named.
        links = "<link rel=\"icon\" href=\"data:,\">";
        let _ = write!(policy, " {}; connect-src 'self'", hash(script));
        let _ = write!(
            scripts,
            "<script type=\"application/json\" id=\"live\">{data}</script><script>{script}</script>"
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; {images}style-src 'unsafe-inline'{policy}\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\">{links}\
         <title>{} {MARK}<style>{}{STYLE}{}</style></head><body><main>{body}</main>{scripts}</body></html>\n",
        escape(title),
        chart::STYLE,
        frame.map_or("", |frame| frame.style)
    )
}

/// As JSON. Names come from files of users: none of them may end the script element.
fn data(runs: &[(&str, &RunRecords)], figures: &[Figure], marks: &[Mark]) -> String {
    let data = PageData::new(runs, figures, marks);
    // Plain numbers and texts always have a JSON form.
    serde_json::to_string(&data).unwrap_or_default().replace('<', "\\u003c")
}

/// What the marks of the charts mean, as HTML.
pub(super) fn legend(marks: &[Mark], runs: usize) -> String {
    let mut out = String::new();
    let crowded = told_apart(marks).1;
    for kind in MarkKind::ALL.into_iter().filter(|kind| marks.iter().any(|m| m.kind == *kind)) {
        let word = match kind {
            // The script says it of what its zoom shows.
            MarkKind::Checkpoint if crowded => {
                "<span class=\"checkpoints\">checkpoints: not marked where they are too close</span>"
            }
            MarkKind::Checkpoint => "<span class=\"checkpoints\">checkpoint</span>",
            MarkKind::End => "ended",
            MarkKind::Resume => "resumed",
            MarkKind::Restart => "restarted",
            MarkKind::Resize => "resized",
        };
        let class = if runs > 1 { "" } else { kind.name() };
        let _ = write!(
            out,
            "<span><svg viewBox=\"-6 -6 12 12\" aria-hidden=\"true\"><path class=\"mark {class}\" d=\"{}\"/></svg>{word}</span>",
            kind.glyph()
        );
    }
    out
}

/// Writes the section of charts; `awaited`: also where there is none yet.
pub(super) fn charts(out: &mut String, figures: &[Figure], marks: &[Mark], runs: usize, awaited: bool) {
    if figures.is_empty() && !awaited {
        return;
    }
    out.push_str("<section>");
    let legend = legend(marks, runs);
    if !legend.is_empty() {
        let _ = write!(out, "<p class=\"marks\">{legend}</p>");
    }
    out.push_str("<div class=\"charts\">");
    // The rules of many runs in one chart could not be distinguished.
    let marks = if runs > 1 { Vec::new() } else { told_apart(marks).0 };
    figures.iter().for_each(|figure| figure.draw(out, &marks));
    out.push_str("</div></section>");
}
