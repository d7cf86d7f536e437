//! Collects results of reading a job: values, problems, and unknown keys.

use super::diagnostics::Problem;
use super::source::{Origin, Span};
use super::suggest::closest;
use serde_json::Value as Json;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A value of the resolved job and its origin.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ResolvedValue {
    /// Dotted; tables of a list are given by index (`scheduler.0.name`).
    pub key: String,
    /// The value, as defaults and overrides left it.
    pub value: toml::Value,
    /// The text that set it.
    pub origin: Origin,
}

/// The keys that a component declares by reading them (`Fields::config`).
#[derive(Clone, Debug)]
pub struct Declaration {
    /// Dotted path of the table; empty for the top level.
    pub table: String,
    /// The schema of its struct; [`schema`](super::schema) reads it.
    pub schema: Json,
}

/// An unknown key, with the known keys of its table.
pub(super) struct Unknown {
    pub table: String,
    pub key: String,
    pub span: Span,
    pub known: KnownKeys,
}

/// The known keys of one table, shared by all of its unknown ones.
pub(super) type KnownKeys = Rc<[Cow<'static, str>]>;

/// Number of unknown keys that are compared with the known ones; a file with more is not a spec with typos.
const EXPLAINED: usize = 1000;

/// The values read, in the order in which they were first seen.
#[derive(Default)]
pub(super) struct CollectedValues {
    list: Vec<Option<ResolvedValue>>,
    places: HashMap<String, usize>,
}

impl CollectedValues {
    /// The position of a key, which stays fixed.
    pub fn reserve(&mut self, key: String) -> usize {
        let next = self.list.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.list.push(None);
        }
        place
    }

    /// A later value of a key replaces the earlier one.
    pub fn note(&mut self, value: ResolvedValue) {
        let place = self.reserve(value.key.clone());
        self.list[place] = Some(value);
    }
}

/// Everything that reading a job produces.
#[derive(Default)]
pub(super) struct Collector {
    pub problems: RefCell<Vec<Problem>>,
    pub unknown: RefCell<Vec<Unknown>>,
    /// Table, key, and the problem that the key is missing.
    pub missing: RefCell<Vec<(String, String, Problem)>>,
    pub values: RefCell<CollectedValues>,
    /// Every known (table, key).
    pub known: RefCell<BTreeSet<(String, String)>>,
    /// Dotted paths of keys that results do not depend on.
    pub without_effect: RefCell<BTreeSet<String>>,
    /// The declarations of all keys that were read, in order.
    pub declarations: RefCell<Vec<Declaration>>,
}

impl Collector {
    pub fn finish(self) -> (Vec<ResolvedValue>, Vec<Problem>) {
        let mut problems = self.problems.into_inner();
        let known = self.known.into_inner();
        let mut unknown = self.unknown.into_inner();
        unknown.sort_by_key(|u| u.span);
        let (explained, rest) = unknown.split_at(unknown.len().min(EXPLAINED));
        // A misspelled key is reported once, not as unknown and as missing.
        let meant: BTreeSet<(&str, &str)> =
            explained.iter().filter_map(|u| Some((u.table.as_str(), u.nearest()?))).collect();
        let missing = self.missing.into_inner().into_iter();
        problems.extend(
            missing
                .filter(|(table, key, _)| !meant.contains(&(table.as_str(), key.as_str())))
                .map(|(_, _, p)| p),
        );
        problems.extend(explained.iter().map(|u| {
            let meant = u.nearest().map(str::to_owned);
            Problem { meant, ..u.problem(unknown_message(u, &known)) }
        }));
        problems.extend(rest.iter().map(|u| u.problem("unknown key")));
        (self.values.into_inner().list.into_iter().flatten().collect(), problems)
    }

    /// Whether no problem has been found so far.
    pub fn is_sound(&self) -> bool {
        self.problems.borrow().is_empty() && self.missing.borrow().is_empty()
    }
}

impl Unknown {
    fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.span, message).coded("unknown-key")
    }

    /// The known key that was probably meant.
    fn nearest(&self) -> Option<&str> {
        closest(&self.key, self.known.iter().map(|k| &**k))
    }
}

fn unknown_message(unknown: &Unknown, known: &BTreeSet<(String, String)>) -> String {
    if let Some(best) = unknown.nearest() {
        return format!("unknown key; did you mean `{best}`?");
    }
    // A key in the wrong table; typically a top-level key after the first header.
    let mut elsewhere = known.iter().filter(|(table, key)| *key == unknown.key && *table != unknown.table);
    match (elsewhere.next(), elsewhere.next()) {
        (Some((table, key)), _) if table.is_empty() => {
            format!("unknown key in `[{}]`; `{key}` belongs at the top, above the first table", unknown.table)
        }
        (Some((table, _)), None) => format!("unknown key here; it belongs in `[{table}]`"),
        _ => {
            let mut names: Vec<String> = unknown.known.iter().map(|n| format!("`{n}`")).collect();
            names.sort();
            match names.as_slice() {
                [] => "unknown key; none is expected here".to_owned(),
                [one] => format!("unknown key; only {one} is known here"),
                many => format!("unknown key; known here: {}", many.join(", ")),
            }
        }
    }
}
