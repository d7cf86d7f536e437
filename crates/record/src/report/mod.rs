//! `report.html`: a self-contained page about a run, generated from `metrics.jsonl`, `run.json`, `job.toml`, `evaluations/` and
//! `prediction.json`; and a page about several runs. It loads nothing, so it can be sent by mail. Its charts are drawings that one script of the page
//! makes interactive (`report.js`).

mod compare;
mod content;
mod evaluations;
mod figures;
#[cfg(feature = "board")]
mod live;
mod matrix;
mod page;
mod prediction;
mod records;
mod run_figures;
mod sections;
mod spec_section;
mod table;
mod timeline;

use base::error::{Error, Result};
#[cfg(feature = "board")]
pub use live::{LiveRun, PagePosition, StalePage, live_page, news};
#[cfg(feature = "board")]
pub use page::{Frame, hash, script_hash, style};
use records::RunRecords;
use std::path::{Path, PathBuf};
pub use table::{Cell, Wide, breakable};

pub(super) fn path(run_dir: &Path) -> PathBuf {
    run_dir.join("report.html")
}

/// What each page has in its title.
pub const MARK: &str = "· ddp-run</title>";

/// Writes `report.html` to the run's folder and returns its path.
///
/// # Errors
/// As [`write_to`]; or the file there is no report (`ErrorKind::Io`).
pub fn write(run_dir: &Path) -> Result<PathBuf> {
    let path = path(run_dir);
    base::files::replaces_no_other(&path, &[MARK])?;
    write_to(&[run_dir], &path)?;
    Ok(path)
}

/// Writes the report if it is missing or older than the metrics.
///
/// # Errors
/// As [`write()`].
pub fn refresh(run_dir: &Path) -> Result<()> {
    if is_outdated(run_dir) { write(run_dir).map(drop) } else { Ok(()) }
}

/// Whether the report is missing or older than the metrics.
pub(super) fn is_outdated(run_dir: &Path) -> bool {
    let written = |path: &Path| std::fs::metadata(path).and_then(|about| about.modified()).ok();
    written(&path(run_dir)) < written(&run_dir.join("metrics.jsonl"))
}

/// Writes a page about these runs to `out`: the report of one run, or a comparison of several.
///
/// # Errors
/// 2 if `out` is the report of one of several runs. An I/O error, or a `run.json` that can't be read.
pub fn write_to(folders: &[&Path], out: &Path) -> Result<()> {
    if folders.len() > 1
        && let Some(own) = folders.iter().find(|folder| is_same(&path(folder), out))
    {
        let text = format!("{} is the report of {}", out.display(), own.display());
        return Err(Error::usage(text).hint("`--out FILE` names another file for the comparison"));
    }
    let runs = folders.iter().map(|folder| RunRecords::read(folder)).collect::<Result<Vec<RunRecords>>>()?;
    for why in runs.iter().filter_map(|run| run.unread_prediction.as_ref()) {
        status!("warning: {why}; the report is without it");
    }
    let page = match &runs[..] {
        [run] => render(run),
        runs => {
            let names = names(folders, runs);
            let named: Vec<(&str, &RunRecords)> = names.iter().map(String::as_str).zip(runs).collect();
            content::page(&named, None)
        }
    };
    base::files::replace(out, page.as_bytes())
}

/// Whether both are one file, there or not.
fn is_same(a: &Path, b: &Path) -> bool {
    let real = |path: &Path| {
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some((folder.canonicalize().ok()?, path.file_name()?.to_owned()))
    };
    real(a).is_some_and(|a| Some(a) == real(b))
}

/// The runs' names; where two are equal, their folders, as typed.
fn names(folders: &[&Path], runs: &[RunRecords]) -> Vec<String> {
    let of =
        |run: &RunRecords, folder: &&Path| match runs.iter().filter(|other| other.name == run.name).count() {
            1 => run.name.clone(),
            _ => folder.display().to_string(),
        };
    runs.iter().zip(folders).map(|(run, folder)| of(run, folder)).collect()
}

fn render(run: &RunRecords) -> String {
    content::page(&[(&run.name, run)], None)
}

/// A page in the style of reports, without a script. `body` is HTML.
pub fn page(title: &str, body: &str) -> String {
    page::whole(title, body, &[], &[], &[], None)
}

/// Text as it may stand in HTML, also in attributes.
pub fn escape(text: &str) -> String {
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
