//! What the readers of a job leave behind: values, problems, and keys that nobody knew.

use super::diagnostics::Problem;
use super::source::{Origin, Span};
use super::suggest::closest;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

/// A value as the job runs with it, and who said so.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct ResolvedValue {
    /// Dotted; the tables of a list are named by their index (`scheduler.0.name`).
    pub key: String,
    pub value: toml::Value,
    pub origin: Origin,
}

/// A key that nobody read, and those that its table's reader knows.
pub(super) struct Unknown {
    pub table: String,
    pub key: String,
    pub span: Span,
    pub known: KnownKeys,
}

/// The keys of one table that its reader knows; all unknown ones of the table share them.
pub(super) type KnownKeys = Rc<[Cow<'static, str>]>;

/// Unknown keys of a job that are compared with the known ones: what has more is no spec with mistakes.
const EXPLAINED: usize = 1000;

/// The values that readers have seen, in the order in which they first did.
#[derive(Default)]
pub(super) struct Values {
    list: Vec<Option<ResolvedValue>>,
    places: HashMap<String, usize>,
}

impl Values {
    /// The place of a key, which it keeps.
    pub fn reserve(&mut self, key: String) -> usize {
        let next = self.list.len();
        let place = *self.places.entry(key).or_insert(next);
        if place == next {
            self.list.push(None);
        }
        place
    }

    /// A later value of a key takes the place of the earlier one.
    pub fn note(&mut self, value: ResolvedValue) {
        let place = self.reserve(value.key.clone());
        self.list[place] = Some(value);
    }
}

/// What the readers of a job leave behind.
#[derive(Default)]
pub(super) struct Collector {
    pub problems: RefCell<Vec<Problem>>,
    pub unknown: RefCell<Vec<Unknown>>,
    /// Table, key, and the problem that it is not there.
    pub missing: RefCell<Vec<(String, String, Problem)>>,
    pub values: RefCell<Values>,
    /// Every (table, key) that a reader knows.
    pub known: RefCell<BTreeSet<(String, String)>>,
    /// Keys that results don't depend on, by their dotted paths.
    pub without_effect: RefCell<BTreeSet<String>>,
}

impl Collector {
    pub fn finish(self) -> (Vec<ResolvedValue>, Vec<Problem>) {
        let mut problems = self.problems.into_inner();
        let known = self.known.into_inner();
        let mut unknown = self.unknown.into_inner();
        unknown.sort_by_key(|u| u.span);
        let (explained, rest) = unknown.split_at(unknown.len().min(EXPLAINED));
        // A misspelled key is one mistake, not an unknown key and a missing one.
        let meant: BTreeSet<(&str, &str)> =
            explained.iter().filter_map(|u| Some((u.table.as_str(), u.nearest()?))).collect();
        let missing = self.missing.into_inner().into_iter();
        problems.extend(
            missing
                .filter(|(table, key, _)| !meant.contains(&(table.as_str(), key.as_str())))
                .map(|(_, _, p)| p),
        );
        problems.extend(explained.iter().map(|u| Problem::new(u.span, unknown_message(u, &known))));
        problems.extend(rest.iter().map(|u| Problem::new(u.span, "unknown key")));
        (self.values.into_inner().list.into_iter().flatten().collect(), problems)
    }

    /// Whether nothing is wrong so far.
    pub fn is_sound(&self) -> bool {
        self.problems.borrow().is_empty() && self.missing.borrow().is_empty()
    }
}

impl Unknown {
    /// The known key that was probably meant.
    fn nearest(&self) -> Option<&str> {
        closest(&self.key, self.known.iter().map(|k| &**k))
    }
}

fn unknown_message(unknown: &Unknown, known: &BTreeSet<(String, String)>) -> String {
    if let Some(best) = unknown.nearest() {
        return format!("unknown key; did you mean `{best}`?");
    }
    // A key in the wrong table: the classic is a top-level key below the first header.
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
