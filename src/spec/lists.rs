//! The accessors of [`Fields`] for lists and maps.

use super::accessors::{integer, number, string};
use super::fields::Fields;
use super::range::words;
use super::tree::Value;
use std::collections::BTreeMap;
use std::ops::RangeBounds;

impl Fields<'_> {
    /// `range` applies to each item.
    pub fn opt_usizes(&mut self, key: &'static str, range: impl RangeBounds<usize>) -> Option<Vec<usize>> {
        let range = (range.start_bound().map(|x| *x as u64), range.end_bound().map(|x| *x as u64));
        let expected = || format!("an integer{}", words(&range, Some(0), Some(i64::MAX as u64)));
        self.list(key, "integers", expected, |value| integer(value, &range).map(|i| i as usize))
    }

    /// `range` applies to each item.
    pub fn opt_f64s(&mut self, key: &'static str, range: impl RangeBounds<f64>) -> Option<Vec<f64>> {
        let expected = || format!("a number{}", words(&range, None, None));
        self.list(key, "numbers", expected, |value| number(value, &range))
    }

    pub fn opt_strs(&mut self, key: &'static str) -> Option<Vec<String>> {
        self.list(key, "strings", || "a string".to_owned(), string)
    }

    /// A table of lists of strings, with any keys.
    pub fn opt_map_strs(&mut self, key: &'static str) -> Option<BTreeMap<String, Vec<String>>> {
        self.map(key, "a list of strings", |value| match value {
            Value::Array(items) => items.iter().map(|item| string(&item.value)).collect(),
            _ => None,
        })
    }

    pub fn usizes(
        &mut self,
        key: &'static str,
        range: impl RangeBounds<usize>,
        default: &[usize],
    ) -> Vec<usize> {
        let read = self.opt_usizes(key, range);
        self.or_default(key, read, default.to_vec(), |items| {
            toml::Value::Array(items.into_iter().map(|i| toml::Value::Integer(i as i64)).collect())
        })
    }

    pub fn f64s(&mut self, key: &'static str, range: impl RangeBounds<f64>, default: &[f64]) -> Vec<f64> {
        let read = self.opt_f64s(key, range);
        self.or_default(key, read, default.to_vec(), |items| {
            toml::Value::Array(items.into_iter().map(toml::Value::Float).collect())
        })
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        things: &str,
        expected: impl Fn() -> String,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<Vec<T>> {
        let entry = self.take(key)?;
        let Value::Array(items) = &entry.node.value else {
            self.wrong(&entry.node, format!("expected a list of {things}"));
            return None;
        };
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match read(&item.value) {
                Some(value) => out.push(value),
                None => self.wrong(item, format!("expected {}", expected())),
            }
        }
        if out.len() < items.len() {
            return None;
        }
        self.note(key, entry.node.span, entry.node.value.to_toml());
        Some(out)
    }

    fn map<T>(
        &mut self,
        key: &'static str,
        thing: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<BTreeMap<String, T>> {
        let entry = self.take(key)?;
        let Value::Table(table) = &entry.node.value else {
            self.wrong(&entry.node, format!("expected a table whose values are each {thing}"));
            return None;
        };
        let mut out = BTreeMap::new();
        for inner in &table.entries {
            match read(&inner.node.value) {
                Some(value) => drop(out.insert(inner.key.clone(), value)),
                None => self.wrong(&inner.node, format!("expected {thing}")),
            }
        }
        if out.len() < table.entries.len() {
            return None;
        }
        self.note(key, entry.node.span, entry.node.value.to_toml());
        Some(out)
    }
}
