//! The texts that a job came from, and places in them.

use std::fmt;

/// What part a text plays in a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The spec that was named.
    Spec,
    /// A file that it extends.
    Base,
    /// One `--set` or `--unset`.
    Override,
}

/// One text that a job came from: a file, or an argument of the command line.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's path as typed (bases: as found), or `--set`.
    pub name: String,
    pub text: String,
    pub(super) role: Role,
}

impl Source {
    pub(super) fn new(role: Role, name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), role }
    }

    pub(super) fn origin(&self) -> Origin {
        match self.role {
            Role::Spec => Origin::Spec,
            Role::Base => Origin::Base(self.name.clone()),
            Role::Override => Origin::Override,
        }
    }

    /// Line and column of a byte offset, both from 1; columns count characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let offset = floor_char_boundary(&self.text, offset);
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        // A byte-order mark is not a character that anyone counts.
        let column = before[line_start..].chars().filter(|c| *c != '\u{feff}').count() + 1;
        (before.matches('\n').count() + 1, column)
    }

    /// The byte range of the line that holds `offset`, without its line ending.
    pub(super) fn line_range(&self, offset: usize) -> std::ops::Range<usize> {
        let offset = floor_char_boundary(&self.text, offset);
        let start = self.text[..offset].rfind('\n').map_or(0, |i| i + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |i| offset + i);
        let end = if self.text[start..end].ends_with('\r') { end - 1 } else { end };
        start..end.max(start)
    }
}

fn floor_char_boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// A byte range in one of the job's sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// Where a resolved value came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The spec that was named.
    Spec,
    /// A file that it extends.
    Base(String),
    /// `--set` on the command line.
    Override,
    /// Nobody said; the component's default.
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Spec => f.write_str("spec"),
            Origin::Base(file) => write!(f, "base {file}"),
            Origin::Override => f.write_str("override"),
            Origin::Default => f.write_str("default"),
        }
    }
}

impl serde::Serialize for Origin {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
