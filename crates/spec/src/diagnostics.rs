//! Problems with their positions, and how they are shown.
//!
//! All problems of a job are collected and shown at once, grouped by file:
//!
//! ```text
//! error: 1 problem in configs/cifar.toml
//!   --> line 7, column 1
//!     7 | batchsize = 128
//!       | ^^^^^^^^^ unknown key; did you mean `batch_size`?
//! ```

use super::source::{Role, Source, Span, SpanIndex};
use anstyle::{AnsiColor, Style};
use base::display::{self, count};
use base::error::{Error, ErrorKind};
use std::fmt::{self, Write};
use std::io::IsTerminal;
use std::sync::Arc;
use unicode_width::UnicodeWidthStr;

/// A problem at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The text that the problem is about.
    pub span: Span,
    /// One line, without position or hint.
    pub message: String,
    /// What to do about it, shown after all problems.
    pub hint: Option<String>,
    /// What was probably meant in place of the marked text.
    pub meant: Option<String>,
    pub(super) kind: ProblemKind,
    pub(super) code: Option<&'static str>,
}

/// What a problem is based on; decides whether it is reliable if part of the job could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProblemKind {
    /// The marked text alone.
    Local,
    /// A missing entry.
    Absence,
    /// A combination of several values.
    Judgement,
}

impl Problem {
    pub(super) fn new(span: Span, message: impl Into<String>) -> Self {
        Self { span, message: message.into(), hint: None, meant: None, kind: ProblemKind::Local, code: None }
    }

    pub(super) fn coded(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    /// What kind of problem it is, for programs: `syntax`, `extends`, `unknown-key`, `missing`, `value`, `conflict` if several
    /// values do not go together, or `usage` for an edit that is not written as one.
    pub fn code(&self) -> &'static str {
        self.code.unwrap_or(match self.kind {
            ProblemKind::Local => "value",
            ProblemKind::Absence => "missing",
            ProblemKind::Judgement => "conflict",
        })
    }
}

/// The code of an edit that is not written as one.
pub(super) const USAGE: &str = "usage";
/// Maximum problems shown per file; a file that is not a spec can have any number.
const SHOWN: usize = 50;
/// Characters of a long line that are shown before, in and after the marked text.
const AROUND: usize = 120;

/// All problems of a job, in the order of its sources and lines.
#[derive(Clone, Debug)]
pub struct Diagnostics {
    sources: Arc<Vec<Source>>,
    problems: Vec<Problem>,
}

impl Diagnostics {
    pub(super) fn new(sources: Arc<Vec<Source>>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|p| p.span);
        problems.dedup_by(|a, b| a.span == b.span && a.message == b.message);
        Self { sources, problems }
    }

    /// Combines problems from reading the texts (`early`) with problems found in the resulting tree (`later`), leaving
    /// out those that may be consequences of the early ones: every problem that touches an early one and, if the tree
    /// is `shaky`, every problem not based on the marked text alone. In a torn text, only problems before the tear are
    /// kept.
    pub(super) fn combine(
        sources: Arc<Vec<Source>>,
        early: &[Problem],
        shaky: bool,
        torn: &[Span],
        later: Vec<Problem>,
    ) -> Self {
        let reported = SpanIndex::new(early.iter().map(|e| e.span));
        let believed = |p: &Problem| {
            let repeats = reported.touches(p.span);
            let after_tear = torn.iter().any(|t| t.source == p.span.source && t.start <= p.span.start);
            !repeats && !after_tear && (!shaky || p.kind == ProblemKind::Local)
        };
        let mut problems = early.to_vec();
        problems.extend(later.into_iter().filter(believed));
        Self::new(sources, problems)
    }

    /// All problems, in the order in which they are shown.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The text in which a problem is.
    pub fn source(&self, problem: &Problem) -> &Source {
        &self.sources[problem.span.source]
    }

    /// Source name, line and column (from 1) of a problem.
    pub fn place(&self, problem: &Problem) -> (&str, usize, usize) {
        let source = &self.sources[problem.span.source];
        let (line, column) = source.position(problem.span.start);
        (&source.name, line, column)
    }

    /// The whole message, without a trailing newline.
    pub(crate) fn render(&self, colour: bool) -> String {
        let mut out = String::new();
        for (i, group) in self.groups().enumerate() {
            let gap = if i == 0 { "" } else { "\n" };
            // Writing to a string can't fail.
            let _ = write!(out, "{gap}{}", self.render_group(group, Paint { on: colour }));
        }
        let shown = self.groups().flat_map(|group| &group[..group.len().min(SHOWN)]);
        let mut hints: Vec<&str> = shown.filter_map(|p| p.hint.as_deref()).collect();
        let mut seen = std::collections::HashSet::new();
        hints.retain(|hint| seen.insert(*hint));
        for (i, hint) in hints.into_iter().enumerate() {
            let gap = if i == 0 { "\n" } else { "" };
            let hint = display::message(hint);
            let _ = writeln!(out, "{gap}{} {hint}", Paint { on: colour }.cyan("hint:"));
        }
        out.truncate(out.trim_end().len());
        out
    }

    /// Groups problems of the same file; those of the command line form one group, and those of the environment.
    fn groups(&self) -> impl Iterator<Item = &[Problem]> {
        self.problems.chunk_by(|a, b| {
            let (a, b) = (a.span.source, b.span.source);
            let role = self.sources[a].role;
            a == b || (role == self.sources[b].role && is_one_line(role))
        })
    }

    fn render_group(&self, group: &[Problem], paint: Paint) -> String {
        let first = &self.sources[group[0].span.source];
        let place = match first.role {
            Role::Override => "on the command line".to_owned(),
            Role::Variable => "in the environment".to_owned(),
            _ => format!("in {}", display::piece(&first.name)),
        };
        let count = count(group.len(), "problem");
        let mut out = format!("{} {count} {place}\n", paint.red("error:"));
        let (shown, rest) = group.split_at(group.len().min(SHOWN));
        let width = shown.iter().map(|p| self.line_label(p).len()).max().unwrap_or(1).max(3);
        for problem in shown {
            out.push_str(&self.render_problem(problem, width, paint));
        }
        if !rest.is_empty() {
            // Writing to a string can't fail.
            let _ = writeln!(out, "  ... and {} more", rest.len());
        }
        out
    }

    /// The text of the gutter: a line number; empty for a one-line argument.
    fn line_label(&self, problem: &Problem) -> String {
        let source = &self.sources[problem.span.source];
        match source.role {
            role if is_one_line(role) => String::new(),
            _ => source.position(problem.span.start).0.to_string(),
        }
    }

    fn render_problem(&self, problem: &Problem, width: usize, paint: Paint) -> String {
        let source = &self.sources[problem.span.source];
        let message = display::message(&problem.message);
        if source.text.is_empty() {
            return format!("  {} {message}\n", paint.blue("-->"));
        }
        let (line, column) = source.position(problem.span.start);
        let place = match source.role {
            role if is_one_line(role) => format!("{}, column {column}", source.name),
            _ => format!("line {line}, column {column}"),
        };
        let range = source.line_range(problem.span.start);
        let start = problem.span.start.clamp(range.start, range.end);
        let end = problem.span.end.clamp(start, range.end);
        let before = display(last_part(&source.text[range.start..start]));
        let marked = display(first_part(&source.text[start..end]));
        let after = display(first_part(&source.text[end..range.end]));
        let bar = paint.blue("|");
        let label = paint.blue(&format!("{:>width$}", self.line_label(problem), width = width + 2));
        let blank = " ".repeat(width + 2);
        let carets = paint.red(&"^".repeat(marked.width().max(1)));
        let pad = " ".repeat(before.width());
        let text = format!("{before}{marked}{after}");
        format!(
            "  {} {place}\n{label} {bar} {}\n{blank} {bar} {pad}{carets} {message}\n",
            paint.blue("-->"),
            text.trim_end()
        )
    }
}

/// Texts of one line, which are shown by their names.
fn is_one_line(role: Role) -> bool {
    matches!(role, Role::Override | Role::Variable)
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostics> for Error {
    /// The message without the leading `error: `, which the printer of the error adds. The command
    /// line alone is wrong (`ErrorKind::Usage`) if its edits are not written as such, and nothing
    /// else is wrong.
    fn from(diagnostics: Diagnostics) -> Self {
        let is_usage = diagnostics.problems.iter().all(|problem| problem.code() == USAGE);
        let kind = if is_usage { ErrorKind::Usage } else { ErrorKind::Spec };
        let paint = Paint::for_stderr();
        let text = diagnostics.render(paint.on);
        let prefix = format!("{} ", paint.red("error:"));
        Error::new(kind, text.strip_prefix(&prefix).unwrap_or(&text)).cause(diagnostics)
    }
}

/// The end of a long text.
fn last_part(text: &str) -> &str {
    text.char_indices().rev().nth(AROUND - 1).map_or(text, |(at, _)| &text[at..])
}

/// The beginning of a long text.
fn first_part(text: &str) -> &str {
    text.char_indices().nth(AROUND).map_or(text, |(at, _)| &text[..at])
}

/// Text as displayed: tabs become four spaces and control characters a dot, so that carets are aligned and a spec can't
/// send control sequences to the terminal.
fn display(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\t' => out.push_str("    "),
            '\u{feff}' => {}
            c if display::is_control(c) => out.push('\u{b7}'),
            c => out.push(c),
        }
    }
    out
}

/// Colours, if enabled.
#[derive(Clone, Copy)]
struct Paint {
    on: bool,
}

impl Paint {
    /// Enabled if stderr is a terminal and `NO_COLOR` is not set (<https://no-color.org>).
    fn for_stderr() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        Self { on: !no_color && std::io::stderr().is_terminal() }
    }

    fn wrap(self, colour: AnsiColor, text: &str) -> String {
        let style = if self.on { colour.on_default().bold() } else { Style::new() };
        format!("{style}{text}{style:#}")
    }
    fn red(self, text: &str) -> String {
        self.wrap(AnsiColor::Red, text)
    }
    fn blue(self, text: &str) -> String {
        self.wrap(AnsiColor::Blue, text)
    }
    fn cyan(self, text: &str) -> String {
        self.wrap(AnsiColor::Cyan, text)
    }
}
