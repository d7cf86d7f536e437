//! Reads one table of a job: its sub-tables, problems, and the record of known keys and values. `config` decodes the
//! values.

use super::ResolvedValue;
use super::collect::{Collector, KnownKeys, Unknown};
use super::diagnostics::Problem;
use super::load::JobTree;
use super::source::{Origin, Span};
use super::tree::{Entry, Table, Value};
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// Reads one table. Reading a key marks it as known; keys that nothing has read are reported when the reader is dropped.
/// An invalid value is reported at its position and treated as absent.
pub struct Fields<'a> {
    job: &'a JobTree,
    pub(super) out: &'a Collector,
    /// `None` for an optional table that is not present.
    pub(super) table: Option<&'a Table>,
    path: String,
    /// The position at which missing keys are reported.
    pub(super) header: Span,
    /// Missing keys are not reported: a problem with the whole table has been.
    pub(super) muted: bool,
    pub(super) known: Vec<Cow<'static, str>>,
    /// Values of keys, from another file.
    pub(super) inherited: Option<Inherited>,
    /// Unknown keys of this table are not reported.
    rest_is_read: bool,
}

/// What [`Fields::inherit`] was given.
pub(super) struct Inherited {
    pub values: Map<String, Json>,
    pub from: String,
}

impl<'a> Fields<'a> {
    pub(super) fn root(job: &'a JobTree, out: &'a Collector) -> Self {
        Self::new(job, out, Some(&job.root), String::new(), Span::new(0, 0..0))
    }

    fn new(
        job: &'a JobTree,
        out: &'a Collector,
        table: Option<&'a Table>,
        path: String,
        header: Span,
    ) -> Self {
        Self {
            job,
            out,
            table,
            path,
            header,
            muted: false,
            known: Vec::new(),
            inherited: None,
            rest_is_read: false,
        }
    }

    /// Dotted path of this table: `dataset`, `scheduler.0`; empty for the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the key is set. Does not mark it as known.
    pub fn has(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    /// Whether the key is set to a string.
    pub fn is_str(&self, key: &str) -> bool {
        self.entry(key).is_some_and(|e| matches!(e.node.value, Value::String(_)))
    }

    /// Whether a reader of this table knows the key.
    pub fn knows(&self, key: &str) -> bool {
        self.known.iter().any(|known| known == key)
    }

    /// Whether no problem has been found yet in any table.
    pub fn is_sound(&self) -> bool {
        self.out.is_sound()
    }

    /// The keys that are set, in order.
    pub fn keys(&self) -> Vec<&'a str> {
        self.table.map(|t| t.keys().collect()).unwrap_or_default()
    }

    /// Gives keys that are not set the values of the file `from`, in all reads from here on; null stands for no value. A key that is set
    /// to another value is reported.
    pub fn inherit(&mut self, values: Map<String, Json>, from: String) {
        self.inherited = Some(Inherited { values, from });
    }

    /// The file that keys have values of, if there is one.
    pub fn inherits_from(&self) -> Option<&str> {
        self.inherited.as_ref().map(|inherited| inherited.from.as_str())
    }

    // ---- tables --------------------------------------------------------------------------------------------------

    /// A sub-table, if it is present.
    pub fn table(&mut self, key: &'static str) -> Option<Fields<'a>> {
        let path = self.join(key);
        let entry = self.take(key)?;
        match &entry.node.value {
            Value::Table(table) => Some(Fields::new(self.job, self.out, Some(table), path, entry.header)),
            Value::Broken => None,
            other => {
                let message = format!("expected a table, `[{path}]`, found {}", other.describe());
                self.push(Problem::new(entry.node.span, message));
                None
            }
        }
    }

    /// A sub-table, or an empty one with all defaults if it is not present.
    pub fn section(&mut self, key: &'static str) -> Fields<'a> {
        let wrong = self.has(key);
        self.table(key).unwrap_or_else(|| {
            let mut empty = Fields::new(self.job, self.out, None, self.join(key), self.header);
            empty.muted = wrong || self.muted;
            empty
        })
    }

    /// A required sub-table.
    pub fn req_section(&mut self, key: &'static str) -> Fields<'a> {
        let absent = !self.has(key);
        if absent {
            self.missing_message(key, format!("missing table `[{}]`", self.join(key)));
        }
        let mut section = self.section(key);
        section.muted |= absent;
        section
    }

    /// A list of tables (`[[key]]`), or one table (`[key]`): calls `f` for each, with its index.
    pub fn tables(&mut self, key: &'static str, f: &mut dyn FnMut(&mut Fields<'_>, usize)) {
        let path = self.join(key);
        let Some(entry) = self.take(key) else { return };
        let items = match &entry.node.value {
            Value::Array(items) => items,
            Value::Table(table) => {
                return f(&mut Fields::new(self.job, self.out, Some(table), path, entry.header), 0);
            }
            Value::Broken => return,
            other => {
                let message =
                    format!("expected a table, `[{path}]` or `[[{path}]]`, found {}", other.describe());
                return self.push(Problem::new(entry.node.span, message));
            }
        };
        for (i, item) in items.iter().enumerate() {
            match &item.value {
                Value::Table(table) => {
                    let path = format!("{path}.{i}");
                    f(&mut Fields::new(self.job, self.out, Some(table), path, item.span), i);
                }
                Value::Broken => {}
                other => self
                    .push(Problem::new(item.span, format!("expected a table, found {}", other.describe()))),
            }
        }
    }

    /// Leaves the other keys of the table unchecked: after a problem their meaning is unknown.
    pub fn ignore_rest(&mut self) {
        self.rest_is_read = true;
    }

    // ---- effect on results ---------------------------------------------------------------------------------------

    /// Declares that results do not depend on these keys of this table.
    pub fn without_effect(&self, keys: &[&str]) {
        self.out.without_effect.borrow_mut().extend(keys.iter().map(|key| self.join(key)));
    }

    /// The dotted paths of all keys that results do not depend on, in all tables that were read.
    pub fn all_without_effect(&self) -> BTreeSet<String> {
        self.out.without_effect.borrow().clone()
    }

    /// Records the resolved value of a key, for the plan to show, if it differs from what is written (`auto`).
    pub fn note_resolved(&mut self, key: &str, value: impl Into<toml::Value>) {
        let origin = self.entry(key).map_or(Origin::Default, |e| self.job.origin(e.node.span));
        self.record(key, value.into(), origin);
    }

    // ---- internals -----------------------------------------------------------------------------------------------

    pub(super) fn join(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub(super) fn entry(&self, key: &str) -> Option<&'a Entry> {
        self.table.and_then(|t| t.get(key))
    }

    pub(super) fn take(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.know(Cow::Borrowed(key));
        self.entry(key)
    }

    pub(super) fn know(&mut self, key: Cow<'static, str>) {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
    }

    pub(super) fn note(&self, key: &str, span: Span, value: toml::Value) {
        self.record(key, value, self.job.origin(span));
    }

    /// Reserves a key's position in the order of values, in case it gets one.
    pub(super) fn reserve(&self, key: &str) {
        self.out.values.borrow_mut().reserve(self.join(key));
    }

    pub(super) fn record(&self, key: &str, value: toml::Value, origin: Origin) {
        let resolved = ResolvedValue { key: self.join(key), value, origin };
        self.out.values.borrow_mut().note(resolved);
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        let mut known = self.out.known.borrow_mut();
        known.extend(self.known.iter().map(|key| (self.path.clone(), key.to_string())));
        if self.rest_is_read {
            return;
        }
        let entries = self.table.map_or(&[][..], |t| &t.entries);
        let all: KnownKeys = self.known.iter().cloned().collect();
        let mut unknown = self.out.unknown.borrow_mut();
        for entry in entries.iter().filter(|e| !self.known.iter().any(|k| *k == e.key)) {
            unknown.push(Unknown {
                table: self.path.clone(),
                key: entry.key.clone(),
                span: entry.key_span,
                known: all.clone(),
            });
        }
    }
}
