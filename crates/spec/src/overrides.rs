//! `--set KEY=VALUE` and `--unset KEY`: edits of the merged tree, checked like the file itself.

use super::diagnostics::{Problem, USAGE};
use super::load::EXTENDS;
use super::merge::merge;
use super::parse;
use super::source::{Role, Source, Span};
use super::suggest::did_you_mean;
use super::tree::{Entry, Node, Table, Value};

/// One edit, as typed after its flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Override {
    /// `KEY=VALUE`. The value is TOML; a bare word is taken as a string.
    Set(String),
    /// A dotted key that is set in the spec or one of its bases.
    Unset(String),
    /// The value of a key from a dedicated flag (`--max-restarts`) or a variable (`PET_MAX_RESTARTS`).
    Given(Given),
}

/// A value of a flag or a variable that sets a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The flag or the variable.
    pub from: String,
    /// The value as it was typed, or as it reads.
    pub typed: String,
    /// The dotted key that it sets.
    pub key: &'static str,
    /// The value as TOML.
    pub toml: String,
}

impl Override {
    /// The flag or other source, and the rest of the text.
    fn parts(&self) -> (&str, &str) {
        match self {
            Override::Set(text) => ("--set", text),
            Override::Unset(text) => ("--unset", text),
            Override::Given(given) => (&given.from, &given.typed),
        }
    }

    /// As it is shown in messages: the text of its [`Source`].
    pub fn shown(&self) -> String {
        let (flag, text) = self.parts();
        format!("{flag} {text}")
    }
}

/// Applies the edits in order and adds each to `sources`, so that problems can show it.
pub(super) fn apply(root: &mut Table, edits: &[Override], sources: &mut Vec<Source>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for edit in edits {
        let (flag, text) = edit.parts();
        let source = sources.len();
        let role = if flag.starts_with('-') { Role::Override } else { Role::Variable };
        sources.push(Source::new(role, flag, edit.shown()));
        let by = Edit { text, source, offset: flag.len() + 1 };
        let done = match edit {
            Override::Set(_) => by.set(root),
            Override::Unset(_) => by.unset(root),
            Override::Given(given) => by.give(given, root),
        };
        if let Err(more) = done {
            problems.extend(more);
        }
    }
    problems
}

/// What an edit returns: all its problems.
type Edited<T = ()> = Result<T, Vec<Problem>>;

/// A key of a dotted path with its position.
struct Segment {
    key: String,
    span: Span,
}

impl Segment {
    fn entry(&self, node: Node) -> Entry {
        Entry { key: self.key.clone(), key_span: self.span, header: self.span, node }
    }
}

struct Edit<'a> {
    text: &'a str,
    source: usize,
    /// Start of `text` in its source.
    offset: usize,
}

impl Edit<'_> {
    fn set(&self, root: &mut Table) -> Edited {
        let Some(equals) = unquoted_equals(self.text) else {
            return Err(vec![
                self.problem(0..self.text.len(), "expected KEY=VALUE, as in `optimizer.lr=1e-3`"),
            ]);
        };
        let path = self.path(&self.text[..equals])?;
        self.refuse_extends(&path)?;
        let value = self.value(equals + 1)?;
        insert(root, &path, value)
    }

    fn unset(&self, root: &mut Table) -> Edited {
        if let Some(equals) = unquoted_equals(self.text) {
            let rest = equals..self.text.len();
            return Err(vec![self.problem(rest, "`--unset` takes a key alone; `--set` gives it a value")]);
        }
        let path = self.path(self.text)?;
        self.refuse_extends(&path)?;
        remove(root, &path)
    }

    /// Sets what a flag says; its text is not an assignment, so every place in it is the value's.
    fn give(&self, given: &Given, root: &mut Table) -> Edited {
        let span = self.span(0..self.text.len());
        let value = parse::value(&given.toml, self.source, 0)?.value;
        let path: Vec<Segment> =
            given.key.split('.').map(|key| Segment { key: key.to_owned(), span }).collect();
        insert(root, &path, Node { value, span })
    }

    fn refuse_extends(&self, path: &[Segment]) -> Edited {
        match path {
            [only] if only.key == EXTENDS => {
                let message = "`extends` is read before the edits of the command line: they can't change it";
                Err(vec![Problem::new(only.span, message)])
            }
            _ => Ok(()),
        }
    }

    /// One with how it is written, whatever the spec is.
    fn problem(&self, range: std::ops::Range<usize>, message: impl Into<String>) -> Problem {
        Problem::new(self.span(range), message).coded(USAGE)
    }

    fn span(&self, range: std::ops::Range<usize>) -> Span {
        Span::new(self.source, range.start + self.offset..range.end + self.offset)
    }

    /// Splits a dotted key, with quoted parts, by parsing it as TOML.
    fn path(&self, key: &str) -> Edited<Vec<Segment>> {
        let whole = 0..key.len();
        if key.trim().is_empty() {
            return Err(vec![self.problem(whole, "missing key before `=`, as in `optimizer.lr=1e-3`")]);
        }
        if key.contains(['\n', '\r', '#', '=']) || key.trim_start().starts_with(['[', '{']) {
            return Err(vec![self.problem(whole, "not a key; write it dotted, as in `optimizer.lr`")]);
        }
        let parsed = parse::document(&format!("{key}=0"), self.source);
        if !parsed.problems.is_empty() {
            let message = "not a key: parts are letters, digits, `-` and `_`, or quoted, joined by dots";
            return Err(vec![self.problem(whole, message)]);
        }
        let mut path = Vec::new();
        let mut table = Some(parsed.root);
        while let Some(entry) = table.take().and_then(|mut t| t.entries.pop()) {
            let Span { source, start, end } = entry.key_span;
            let span = Span { source, start: start + self.offset, end: end + self.offset };
            path.push(Segment { key: entry.key, span });
            if let Value::Table(inner) = entry.node.value {
                table = Some(inner);
            }
        }
        Ok(path)
    }

    fn value(&self, from: usize) -> Edited<Node> {
        let raw = &self.text[from..];
        let text = raw.trim();
        let start = from + (raw.len() - raw.trim_start().len());
        let range = start..start + text.len();
        if text.is_empty() {
            return Err(vec![self.problem(range, "missing value; `\"\"` is the empty string")]);
        }
        parse::value(text, self.source, self.offset + start).or_else(|problems| {
            // Text with a leading quote or bracket, or that looks like a number, was meant as TOML; anything else is a
            // word.
            let number = text.bytes().all(|b| b.is_ascii_digit() || b"+-._".contains(&b));
            if text.starts_with(['"', '\'', '[', '{']) || (number && text.parse::<f64>().is_ok()) {
                return Err(problems);
            }
            Ok(Node { value: Value::String(text.to_owned()), span: self.span(range) })
        })
    }
}

/// Position of the first `=` outside quotes.
fn unquoted_equals(text: &str) -> Option<usize> {
    let mut quote = None;
    for (i, c) in text.char_indices() {
        match (c, quote) {
            ('=', None) => return Some(i),
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            _ => {}
        }
    }
    None
}

fn insert(root: &mut Table, path: &[Segment], value: Node) -> Edited {
    let Some((last, parents)) = path.split_last() else { return Ok(()) };
    let table = descend(root, parents, |table, missing| {
        let node = Node { value: Value::Table(Table::default()), span: missing.span };
        table.entries.push(missing.entry(node));
        Ok(())
    })?;
    merge(table, Table { entries: vec![last.entry(value)] });
    Ok(())
}

fn remove(root: &mut Table, path: &[Segment]) -> Edited {
    let Some((last, parents)) = path.split_last() else { return Ok(()) };
    let table = descend(root, parents, |table, missing| Err(vec![not_set(missing, table)]))?;
    match table.remove(&last.key) {
        Some(_) => Ok(()),
        None => Err(vec![not_set(last, table)]),
    }
}

/// The table at `path`. `missing` is called for a table that is not there; it adds it, or fails.
fn descend<'t>(
    root: &'t mut Table,
    path: &[Segment],
    missing: impl Fn(&mut Table, &Segment) -> Edited,
) -> Edited<&'t mut Table> {
    let (mut table, mut path, mut is_root) = (root, path.iter(), true);
    while let Some(segment) = path.next() {
        // A table that is alone is the first of its list.
        if !std::mem::take(&mut is_root) && segment.key == "0" && table.get("0").is_none() {
            continue;
        }
        if table.get(&segment.key).is_none() {
            missing(table, segment)?;
        }
        let entry = table.get_mut(&segment.key).expect("`missing` adds it, or fails");
        table = match &mut entry.node.value {
            Value::Table(inner) => inner,
            Value::Array(items) => match path.next() {
                Some(index) => element(items, segment, index)?,
                None => return Err(vec![no_item_alone(segment, items)]),
            },
            other => return Err(vec![not_a_table(segment, other)]),
        };
    }
    Ok(table)
}

/// `scheduler.0`: tables of a list are addressed by index.
fn element<'t>(items: &'t mut [Node], list: &Segment, index: &Segment) -> Edited<&'t mut Table> {
    let count = items.len();
    let found = index.key.parse::<usize>().ok().and_then(|i| items.get_mut(i));
    match found.map(|node| &mut node.value) {
        Some(Value::Table(table)) => Ok(table),
        Some(other) => Err(vec![not_a_table(index, other)]),
        None => Err(vec![Problem::new(
            index.span,
            format!("`{}` is a list of {count}: its items are numbered from 0", list.key),
        )]),
    }
}

/// `scheduler.0` itself: a list is changed as a whole, or in the keys of its tables.
fn no_item_alone(list: &Segment, items: &[Node]) -> Problem {
    let (name, count) = (&list.key, items.len());
    let how = match items.first().map(|node| &node.value) {
        Some(Value::Table(_)) => "name a key of one of its tables, or the whole list",
        _ => "name the whole list",
    };
    Problem::new(list.span, format!("`{name}` is a list of {count}: {how}"))
}

fn not_a_table(segment: &Segment, found: &Value) -> Problem {
    Problem::new(segment.span, format!("`{}` is {}, not a table", segment.key, found.describe()))
}

fn not_set(segment: &Segment, table: &Table) -> Problem {
    let keys: Vec<&str> = table.keys().collect();
    let suggestion = did_you_mean(&segment.key, keys.iter().copied());
    let suggestion = suggestion.replace("is known here", "is set here").replace("known here", "set here");
    Problem::new(segment.span, format!("nothing to unset: `{}` is not set{suggestion}", segment.key))
}
