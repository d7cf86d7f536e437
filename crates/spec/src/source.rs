//! The source texts of a job, and positions in them.

use std::fmt;

/// The role of a text in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The spec named on the command line.
    Spec,
    /// A file that it extends.
    Base,
    /// One `--set` or `--unset`, or a flag for a single key.
    Override,
    /// A variable of the environment.
    Variable,
}

/// A source text: a file, or an argument of the command line.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's path as typed (for bases, as found), or a flag, or a variable.
    pub name: String,
    /// The whole text.
    pub text: String,
    pub(super) role: Role,
    /// Start of each line, precomputed because a text may have as many problems as lines.
    lines: Vec<usize>,
}

impl Source {
    pub(super) fn new(role: Role, name: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { name: name.into(), text, role, lines }
    }

    pub(super) fn origin(&self) -> Origin {
        match self.role {
            Role::Spec => Origin::Spec,
            Role::Base => Origin::Base(self.name.clone()),
            Role::Override => Origin::Override(self.name.clone()),
            Role::Variable => Origin::Variable(self.name.clone()),
        }
    }

    /// Whether it is a file that the spec extends.
    pub fn is_base(&self) -> bool {
        self.role == Role::Base
    }

    /// Whether it is an edit of the command line.
    pub fn is_override(&self) -> bool {
        self.role == Role::Override
    }

    /// Line and column of a byte offset, both from 1; columns count characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let offset = self.text.floor_char_boundary(offset);
        let line = self.line(offset);
        let before = &self.text[self.lines[line]..offset];
        // A byte-order mark is not counted as a character.
        let column = before.chars().filter(|c| *c != '\u{feff}').count() + 1;
        (line + 1, column)
    }

    /// Number of the line that holds `offset`, from 0.
    fn line(&self, offset: usize) -> usize {
        self.lines.partition_point(|start| *start <= offset) - 1
    }

    /// The byte range of the line that holds `offset`, without its line ending.
    pub(super) fn line_range(&self, offset: usize) -> std::ops::Range<usize> {
        let line = self.line(offset.min(self.text.len()));
        let start = self.lines[line];
        let end = self.lines.get(line + 1).map_or(self.text.len(), |next| next - 1);
        let end = if self.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end.max(start)
    }
}

/// A byte range in one of the job's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// Index of the [`Source`].
    pub source: usize,
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub(super) fn new(source: usize, range: std::ops::Range<usize>) -> Self {
        Self { source, start: range.start, end: range.end }
    }
}

/// The origin of a resolved value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The spec named on the command line.
    Spec,
    /// A file that it extends.
    Base(String),
    /// `--set`, or a flag for this key, on the command line.
    Override(String),
    /// A variable of the environment.
    Variable(String),
    /// The component's default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Spec => f.write_str("spec"),
            Origin::Base(file) => write!(f, "base {file}"),
            Origin::Override(name) | Origin::Variable(name) => f.write_str(name),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl serde::Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Tells whether any of a set of spans touches a given one, without checking each.
#[derive(Debug, Default)]
pub(super) struct SpanIndex {
    /// Source and start of each span, sorted, with the largest end of all spans of that source up to it.
    furthest: Vec<(usize, usize, usize)>,
}

impl SpanIndex {
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Self {
        let mut furthest: Vec<_> = spans.into_iter().map(|s| (s.source, s.start, s.end)).collect();
        furthest.sort_unstable();
        for i in 1..furthest.len() {
            let before = furthest[i - 1];
            if before.0 == furthest[i].0 {
                furthest[i].2 = furthest[i].2.max(before.2);
            }
        }
        Self { furthest }
    }

    /// Whether one of the spans overlaps or adjoins `span`.
    pub fn touches(&self, span: Span) -> bool {
        let up_to = self.furthest.partition_point(|f| (f.0, f.1) <= (span.source, span.end));
        let last = up_to.checked_sub(1).map(|i| self.furthest[i]);
        last.is_some_and(|(source, _, end)| source == span.source && span.start <= end)
    }
}
