//! The contents of a page: one run, or several runs in the same charts.

use super::figures::Figure;
use super::page::{self, Frame};
use super::records::RunRecords;
use super::timeline::{self, Mark};
use super::{compare, evaluations, prediction, run_figures, sections};

/// What follows the charts of a run, in this order; one without content writes nothing.
const SECTIONS: &[fn(&mut String, &RunRecords)] = &[
    evaluations::section,
    prediction::section,
    sections::ranks,
    sections::epochs,
    sections::history,
    sections::provenance,
    sections::job,
];

/// A run, under the name by which the page shows it.
pub(super) type NamedRun<'a> = (&'a str, &'a RunRecords);

/// The whole page. `frame` is for a page whose runs continue.
pub(super) fn page(runs: &[NamedRun<'_>], frame: Option<&Frame<'_>>) -> String {
    let (figures, marks) = (figures(runs), marks(runs));
    let (mut head, mut rest) = (head(runs), rest(runs));
    if let Some(frame) = frame {
        // The script replaces their contents.
        head = format!("{}<div id=\"head\">{head}</div>", frame.before);
        rest = format!("<div id=\"rest\">{rest}</div>");
    }
    let mut body = head;
    page::charts(&mut body, &figures, &marks, runs.len(), frame.is_some());
    body.push_str(&rest);
    page::whole(&title(runs), &body, runs, &figures, &marks, frame)
}

fn title(runs: &[NamedRun<'_>]) -> String {
    match runs {
        [(name, _)] => (*name).to_owned(),
        runs => format!("{} runs", runs.len()),
    }
}

/// The part above the charts.
pub(super) fn head(runs: &[NamedRun<'_>]) -> String {
    let mut out = String::new();
    match runs {
        [(_, run)] => {
            sections::header(&mut out, run);
            sections::tiles(&mut out, run);
        }
        runs => compare::head(&mut out, runs),
    }
    out
}

/// The part below the charts.
pub(super) fn rest(runs: &[NamedRun<'_>]) -> String {
    let mut out = String::new();
    match runs {
        [(_, run)] => SECTIONS.iter().for_each(|section| section(&mut out, run)),
        runs => compare::rest(&mut out, runs),
    }
    out
}

pub(super) fn figures(runs: &[NamedRun<'_>]) -> Vec<Figure> {
    match runs {
        [(_, run)] => run_figures::of_run(run),
        runs => run_figures::of_runs(runs),
    }
}

pub(super) fn marks(runs: &[NamedRun<'_>]) -> Vec<Mark> {
    let of_all = runs.iter().enumerate().flat_map(|(i, (_, run))| timeline::marks(run, i));
    // The checkpoints of many runs would hide all else.
    of_all.filter(|mark| runs.len() == 1 || mark.has_rule()).collect()
}
