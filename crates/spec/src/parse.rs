//! Parses TOML text to a tree with positions, continuing after errors.

use super::diagnostics::Problem;
use super::source::{Span, SpanIndex};
use super::tree::{Entry, Node, Table, Value};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A parsed text. `problems` are its syntax errors.
pub(super) struct Parsed {
    pub root: Table,
    pub problems: Vec<Problem>,
    /// Lines were left out: a missing key may be in one of them.
    pub shaky: bool,
    /// Nothing could be read from here on: a bracket or quote is not closed.
    pub torn: Option<Span>,
}

/// A text that needs more rounds is not a spec with typos.
const MAX_ROUNDS: usize = 100;
/// Maximum bytes parsed in all rounds together; a spec has a few thousand.
const MAX_WORK: usize = 8 << 20;

/// Maximum number of times that a text of this size is parsed again.
pub(super) fn rounds(bytes: usize) -> usize {
    (MAX_WORK / bytes.max(1)).min(MAX_ROUNDS)
}

/// Parses a whole document, source number `source`.
///
/// The parser stops at the first line that it can't parse. That line is blanked and the rest is parsed again, so that
/// all errors are found and all positions stay correct.
pub(super) fn document(text: &str, source: usize) -> Parsed {
    // The parser skips a byte-order mark, but its spans do not count it.
    let (body, offset) = match text.strip_prefix('\u{feff}') {
        Some(rest) => (rest, text.len() - rest.len()),
        None => (text, 0),
    };
    let mut left = body.to_owned();
    let mut kept: Vec<Problem> = Vec::new();
    let mut torn = None;
    for round in 0.. {
        let (table, errors) = DeTable::parse_recoverable(&left);
        let mut walk = Walk { text: body, source, offset, ..Walk::default() };
        let mut errors: Vec<(Range<usize>, &str)> =
            errors.iter().map(|e| (e.span().unwrap_or(0..0), e.message())).collect();
        errors.sort_by_key(|(range, _)| range.start);
        let bad = errors.iter().position(|(range, message)| !is_local(message, &left, range.start));
        if let Some(opener) = never_closed(&errors, table.get_ref(), &left) {
            // The rest of the text was parsed as its content.
            errors.retain(|(range, _)| range.start < opener.start);
            let message = format!("this `{}` is never closed", &body[opener.clone()]);
            let tear = walk.span(opener);
            kept.retain(|p| p.span.start < tear.start);
            torn = Some(tear);
            kept.extend(torn.map(|span| Problem::new(span, message)));
        } else if let Some(bad) = bad
            && round < rounds(left.len())
        {
            let (range, message) = errors[bad].clone();
            kept.push(walk.problem(range.clone(), message));
            blank(&mut left, unreadable(body, range.start));
            continue;
        }
        for (range, message) in errors {
            let problem = walk.problem(range, message);
            walk.problems.push(problem);
        }
        walk.reported = SpanIndex::new(walk.problems.iter().map(|p| p.span));
        let root = walk.table(table.get_ref());
        let shaky = !kept.is_empty();
        kept.append(&mut walk.problems);
        return Parsed { root, problems: kept, shaky, torn };
    }
    unreachable!("the last round returns")
}

/// The opening bracket or quote of the outermost value that is still open at the end, according to an error.
fn never_closed(errors: &[(Range<usize>, &str)], root: &DeTable<'_>, text: &str) -> Option<Range<usize>> {
    let open = |message: &str| {
        message.starts_with("unclosed array,")
            || message.starts_with("unclosed inline")
            || message.contains("multi-line")
    };
    let at = errors.iter().filter(|(_, message)| open(message)).map(|(range, _)| range.start).min()?;
    let start = outermost_around(root, at, text)?;
    let length = ["\"\"\"", "'''"].iter().find(|q| text[start..].starts_with(**q)).map_or(1, |q| q.len());
    Some(start..start + length)
}

fn outermost_around(table: &DeTable<'_>, at: usize, text: &str) -> Option<usize> {
    table.values().find_map(|value| {
        let span = value.span();
        let around = span.start <= at && at <= span.end;
        let opens = text.get(span.start..).is_some_and(|t| t.starts_with(['[', '{', '"', '\'']));
        match value.get_ref() {
            DeValue::Table(inner) if !opens || text[span.start..].starts_with('[') => {
                outermost_around(inner, at, text)
            }
            DeValue::Array(items)
                if items.iter().any(|i| matches!(i.get_ref(), DeValue::Table(_))) && !around =>
            {
                items.iter().find_map(|item| match item.get_ref() {
                    DeValue::Table(inner) => outermost_around(inner, at, text),
                    _ => None,
                })
            }
            _ => (around && opens).then_some(span.start),
        }
    })
}

/// The range that an error makes unreadable: its line, and after a broken header all lines up to the next one.
fn unreadable(text: &str, at: usize) -> Range<usize> {
    let at = at.min(text.len());
    let start = text[..at].rfind('\n').map_or(0, |i| i + 1);
    let line_end = |from: usize| text[from..].find('\n').map_or(text.len(), |i| from + i);
    let mut end = line_end(at);
    if text[start..].trim_start_matches([' ', '\t']).starts_with('[') {
        while end < text.len() && !text[end + 1..].trim_start_matches([' ', '\t']).starts_with('[') {
            end = line_end(end + 1);
        }
    }
    start..end
}

/// Replaces every byte except line ends with a space.
fn blank(text: &mut String, range: Range<usize>) {
    let blanked: String = text[range.clone()].bytes().map(|b| if b == b'\n' { '\n' } else { ' ' }).collect();
    text.replace_range(range, &blanked);
}

/// Parses one value, at byte `offset` of source number `source`. `Err` contains the syntax errors.
pub(super) fn value(text: &str, source: usize, offset: usize) -> Result<Node, Vec<Problem>> {
    let (value, errors) = DeValue::parse_recoverable(text);
    let mut walk = Walk { text, source, offset, ..Walk::default() };
    for error in &errors {
        let problem = walk.problem(error.span().unwrap_or(0..0), error.message());
        walk.problems.push(problem);
    }
    if !walk.problems.is_empty() {
        return Err(walk.problems);
    }
    let node = walk.node(&value);
    if walk.problems.is_empty() { Ok(node) } else { Err(walk.problems) }
}

/// Whether a syntax error leaves the position of everything else intact.
fn is_local(message: &str, text: &str, at: usize) -> bool {
    if message.starts_with("duplicate key") || message.starts_with("cannot extend") {
        return true;
    }
    let at = at.min(text.len());
    let line_start = text.as_bytes()[..at].iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
    let in_header = text[line_start..].trim_start().starts_with('[');
    message.starts_with("string values must be quoted") && !in_header
}

/// Rewords the parser's messages in this program's terms; `found` is the marked text.
fn reword(message: &str, found: &str) -> String {
    let found = found.trim();
    let said = match message {
        m if m.starts_with("string values must be quoted") && found.is_empty() => "missing value",
        m if m.starts_with("string values must be quoted") || m.starts_with("invalid boolean") => {
            return format!("not a value; a string needs quotes: \"{}\"", found.escape_debug());
        }
        "duplicate key" => {
            return format!("duplicate key: `{}` is set above already", found.trim_matches(['"', '\'']));
        }
        m if m.starts_with("key with no value") => "a key needs `=` and a value",
        m if m.starts_with("unquoted keys cannot be empty") => "missing key",
        m if m.starts_with("unclosed table, expected `]`") => "this header lacks its closing `]`",
        m if m.starts_with("invalid basic string, expected `\"`") => "this string lacks its closing `\"`",
        m if m.starts_with("invalid literal string, expected `'`") => "this string lacks its closing `'`",
        m if m.starts_with("unexpected key or value, expected newline") => {
            "only a comment can follow a value on its line"
        }
        m => m.trim_end_matches(", expected nothing"),
    };
    said.to_owned()
}

#[derive(Default)]
struct Walk<'t> {
    text: &'t str,
    source: usize,
    offset: usize,
    problems: Vec<Problem>,
    /// Positions of the parser's own problems.
    reported: SpanIndex,
}

impl Walk<'_> {
    /// A syntax error in this program's words.
    fn problem(&self, range: Range<usize>, message: &str) -> Problem {
        let found = self.text.get(range.clone()).unwrap_or("");
        Problem::new(self.span(range), reword(message, found))
    }

    fn span(&self, range: Range<usize>) -> Span {
        Span::new(self.source, range.start + self.offset..range.end + self.offset)
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let entries = table
            .iter()
            .map(|(key, value)| {
                let key_span = self.span(key.span());
                let inline = self.text.get(value.span()).is_some_and(|t| t.starts_with('{'));
                let node = self.node(value);
                let header = if inline { key_span } else { node.span };
                Entry { key: key.get_ref().to_string(), key_span, header, node }
            })
            .collect();
        Table { entries }
    }

    fn node(&mut self, value: &Spanned<DeValue<'_>>) -> Node {
        let span = self.span(value.span());
        let value = match value.get_ref() {
            DeValue::String(s) => Value::String(s.to_string()),
            DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
                Ok(i) => Value::Integer(i),
                Err(_) => self.broken(span, "integer out of range: it must fit 64 bits, signed"),
            },
            DeValue::Float(x) => match x.as_str().parse::<f64>() {
                Ok(v) if v.is_finite() || x.as_str().contains("inf") || v.is_nan() => Value::Float(v),
                _ => self.broken(span, "number out of range: it must fit a 64-bit float"),
            },
            DeValue::Boolean(b) => Value::Boolean(*b),
            DeValue::Datetime(d) => Value::Datetime(*d),
            DeValue::Array(items) => Value::Array(items.iter().map(|item| self.node(item)).collect()),
            DeValue::Table(table) => Value::Table(self.table(table)),
        };
        Node { value, span }
    }

    fn broken(&mut self, span: Span, message: &str) -> Value {
        // Error recovery also returns partly read numbers, which the parser has reported.
        if !self.reported.touches(span) {
            self.problems.push(Problem::new(span, message));
        }
        Value::Broken
    }
}
