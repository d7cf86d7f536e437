//! Typed accessors of [`Fields`] for scalars and choices: optional, with a default, or required. Lists and maps are in
//! `lists`.

use super::diagnostics::Problem;
use super::fields::Fields;
use super::range::words;
use super::source::Origin;
use super::suggest::closest;
use super::tree::{Node, Value};
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};

impl Fields<'_> {
    // ---- scalars -------------------------------------------------------------------------------------------------

    pub fn opt_bool(&mut self, key: &'static str) -> Option<bool> {
        self.scalar(
            key,
            || "expected true or false".to_owned(),
            |value| match value {
                Value::Boolean(b) => Some((*b, toml::Value::Boolean(*b))),
                _ => None,
            },
        )
    }

    pub fn opt_u64(&mut self, key: &'static str, range: impl RangeBounds<u64>) -> Option<u64> {
        let expected = || format!("expected an integer{}", words(&range, Some(0), Some(i64::MAX as u64)));
        self.scalar(key, expected, |value| {
            integer(value, &range).map(|i| (i, toml::Value::Integer(i as i64)))
        })
    }

    pub fn opt_usize(&mut self, key: &'static str, range: impl RangeBounds<usize>) -> Option<usize> {
        let range = (range.start_bound().map(|x| *x as u64), range.end_bound().map(|x| *x as u64));
        self.opt_u64(key, range).map(|i| i as usize)
    }

    /// Accepts integers too; rejects infinities and NaN.
    pub fn opt_f64(&mut self, key: &'static str, range: impl RangeBounds<f64>) -> Option<f64> {
        let expected = || format!("expected a number{}", words(&range, None, None));
        self.scalar(key, expected, |value| number(value, &range).map(|x| (x, toml::Value::Float(x))))
    }

    pub fn opt_str(&mut self, key: &'static str) -> Option<String> {
        self.scalar(
            key,
            || "expected a string".to_owned(),
            |value| match value {
                Value::String(s) => Some((s.clone(), toml::Value::String(s.clone()))),
                _ => None,
            },
        )
    }

    // ---- with a default ------------------------------------------------------------------------------------------

    pub fn bool(&mut self, key: &'static str, default: bool) -> bool {
        let read = self.opt_bool(key);
        self.or_default(key, read, default, toml::Value::Boolean)
    }

    pub fn u64(&mut self, key: &'static str, range: impl RangeBounds<u64>, default: u64) -> u64 {
        let read = self.opt_u64(key, range);
        self.or_default(key, read, default, |i| toml::Value::Integer(i as i64))
    }

    pub fn usize(&mut self, key: &'static str, range: impl RangeBounds<usize>, default: usize) -> usize {
        let read = self.opt_usize(key, range);
        self.or_default(key, read, default, |i| toml::Value::Integer(i as i64))
    }

    pub fn f64(&mut self, key: &'static str, range: impl RangeBounds<f64>, default: f64) -> f64 {
        let read = self.opt_f64(key, range);
        self.or_default(key, read, default, toml::Value::Float)
    }

    pub fn str(&mut self, key: &'static str, default: &str) -> String {
        let read = self.opt_str(key);
        self.or_default(key, read, default.to_owned(), toml::Value::String)
    }

    // ---- required ------------------------------------------------------------------------------------------------

    pub fn req_usize(&mut self, key: &'static str, range: impl RangeBounds<usize>) -> usize {
        let placeholder = start_of(&range).unwrap_or(1);
        self.opt_usize(key, range).unwrap_or_else(|| self.missing(key, placeholder))
    }

    pub fn req_str(&mut self, key: &'static str) -> String {
        self.opt_str(key).unwrap_or_else(|| self.missing(key, String::new()))
    }

    // ---- choices -------------------------------------------------------------------------------------------------

    /// One of the named values. `default` must be one of the names.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
        default: &'static str,
    ) -> T {
        debug_assert!(choices.iter().any(|(name, _)| *name == default), "{default} is not a choice of {key}");
        let read = self.opt_choice(key, choices);
        let fallback = choices.iter().find(|(name, _)| *name == default).unwrap_or(&choices[0]).1;
        self.or_default(key, read, fallback, |_| toml::Value::String(default.to_owned()))
    }

    pub fn opt_choice<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let entry = self.take(key)?;
        if let Value::String(typed) = &entry.node.value
            && let Some((name, choice)) = choices.iter().find(|(name, _)| name == typed)
        {
            self.note(key, entry.node.span, toml::Value::String((*name).to_owned()));
            return Some(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        self.wrong_choice(&entry.node, &names);
        None
    }

    /// Reads `name`, which determines the other keys of the table, and returns the one of `kinds` with this name. After
    /// a problem the rest of the table is not checked.
    pub fn kind<'k, K>(&mut self, kinds: impl Iterator<Item = (&'k str, K)>) -> Option<(&'k str, K)> {
        let mut kinds: Vec<(&str, K)> = kinds.collect();
        let Some(entry) = self.take("name") else {
            self.missing("name", ());
            self.ignore_rest();
            return None;
        };
        let is_typed = |(name, _): &(&str, K)| matches!(&entry.node.value, Value::String(s) if s == name);
        if let Some(at) = kinds.iter().position(is_typed) {
            self.note("name", entry.node.span, entry.node.value.to_toml());
            return Some(kinds.swap_remove(at));
        }
        self.wrong_choice(&entry.node, &kinds.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        self.ignore_rest();
        None
    }

    /// Reports that `key`'s value is none of `names`, with the closest one.
    pub fn unknown_name(&mut self, key: &str, names: &[&str]) {
        if let Some(entry) = self.entry(key) {
            self.wrong_choice(&entry.node, names);
        }
    }

    pub(super) fn wrong_choice(&self, node: &Node, names: &[&str]) {
        if matches!(node.value, Value::Broken) {
            return;
        }
        let found = node.value.describe();
        let best = match &node.value {
            Value::String(typed) => closest(typed, names.iter().copied()),
            _ => None,
        };
        let message = match best {
            Some(best) => format!("unknown value; did you mean \"{best}\"?"),
            None => format!("expected {}, found {found}", any_of(names)),
        };
        self.push(Problem::new(node.span, message));
    }

    pub(super) fn or_default<T: Clone>(
        &self,
        key: &str,
        read: Option<T>,
        default: T,
        value: impl Fn(T) -> toml::Value,
    ) -> T {
        match read {
            Some(read) => read,
            None => {
                if !self.has(key) {
                    self.record(key, value(default.clone()), Origin::Default);
                }
                default
            }
        }
    }

    pub(super) fn wrong(&self, node: &Node, expected: impl Display) {
        if !matches!(node.value, Value::Broken) {
            self.push(Problem::new(node.span, format!("{expected}, found {}", node.value.describe())));
        }
    }

    fn scalar<T>(
        &mut self,
        key: &'static str,
        expected: impl Fn() -> String,
        read: impl Fn(&Value) -> Option<(T, toml::Value)>,
    ) -> Option<T> {
        let entry = self.take(key)?;
        match read(&entry.node.value) {
            Some((value, shown)) => {
                self.note(key, entry.node.span, shown);
                Some(value)
            }
            None => {
                self.wrong(&entry.node, expected());
                None
            }
        }
    }
}

pub(super) fn integer(value: &Value, range: &impl RangeBounds<u64>) -> Option<u64> {
    match value {
        Value::Integer(i) => u64::try_from(*i).ok().filter(|i| range.contains(i)),
        _ => None,
    }
}

pub(super) fn number(value: &Value, range: &impl RangeBounds<f64>) -> Option<f64> {
    let x = match value {
        Value::Integer(i) => *i as f64,
        Value::Float(x) => *x,
        _ => return None,
    };
    (x.is_finite() && range.contains(&x)).then_some(x)
}

pub(super) fn string(value: &Value) -> Option<String> {
    match value {
        Value::String(s) => Some(s.clone()),
        _ => None,
    }
}

fn start_of<T: Copy>(range: &impl RangeBounds<T>) -> Option<T> {
    match range.start_bound() {
        Bound::Included(x) | Bound::Excluded(x) => Some(*x),
        Bound::Unbounded => None,
    }
}

/// `"a", "b" or "c"`.
pub(super) fn any_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|n| format!("\"{n}\"")).collect();
    match quoted.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
    }
}
