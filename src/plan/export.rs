//! A plan as a spec, and its hash.

use super::Plan;
use crate::spec::ResolvedValue;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

impl Plan {
    /// The resolved job as a spec with all defaults; it resolves to a plan with the same values.
    pub fn to_toml(&self) -> String {
        let mut root = Table::new();
        for resolved in &self.values {
            let segments: Vec<&str> = resolved.key.split('.').collect();
            insert(&mut root, &segments, resolved.value.clone());
        }
        let body = toml::to_string_pretty(&root).expect("a table of TOML values is always TOML");
        format!("# Resolved by ddp-run; `ddp-run train` on this file runs the same job.\n{body}")
    }

    /// The values that results depend on, as TOML: without names, places of data, and how the job is launched and saved.
    pub fn results_toml(&self) -> String {
        let mut root = Table::new();
        for resolved in self.values.iter().filter(|value| self.changes_results(&value.key)) {
            let segments: Vec<&str> = resolved.key.split('.').collect();
            insert(&mut root, &segments, resolved.value.clone());
        }
        toml::to_string_pretty(&root).expect("a table of TOML values is always TOML")
    }

    /// Whether results may depend on a key, given by its dotted path: neither the key nor its table is declared as
    /// without effect.
    pub fn changes_results(&self, key: &str) -> bool {
        let tables = key.match_indices('.').map(|(at, _)| &key[..at]);
        !tables.chain([key]).any(|path| self.without_effect.contains(path))
    }

    /// All values as JSON, by their dotted keys.
    pub fn flat(&self) -> serde_json::Map<String, serde_json::Value> {
        let value = |v: &ResolvedValue| (v.key.clone(), serde_json::to_value(&v.value).unwrap_or_default());
        self.values.iter().map(value).collect()
    }

    /// All values of a table as JSON, by key.
    pub fn table(&self, name: &str) -> serde_json::Map<String, serde_json::Value> {
        let in_table = |v: &ResolvedValue| {
            let key = v.key.strip_prefix(name)?.strip_prefix('.')?;
            Some((key.to_owned(), serde_json::to_value(&v.value).unwrap_or_default()))
        };
        self.values.iter().filter_map(in_table).collect()
    }
}

/// Inserts `value` at a dotted path and creates tables as needed; a number is an index in a list of tables.
fn insert(table: &mut Table, path: &[&str], value: Value) {
    match path {
        [] => {}
        [key] => drop(table.insert((*key).to_owned(), value)),
        [key, index, rest @ ..] if index.parse::<usize>().is_ok() && !rest.is_empty() => {
            let list = table.entry(*key).or_insert_with(|| Value::Array(Vec::new()));
            let (Value::Array(items), Ok(index)) = (list, index.parse::<usize>()) else { return };
            while items.len() <= index {
                items.push(Value::Table(Table::new()));
            }
            if let Value::Table(inner) = &mut items[index] {
                insert(inner, rest, value);
            }
        }
        [key, rest @ ..] => {
            let inner = table.entry(*key).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// SHA-256 over the values that affect results, sorted by key.
pub(super) fn hash(plan: &Plan) -> String {
    let mut counted: Vec<&ResolvedValue> =
        plan.values.iter().filter(|v| plan.changes_results(&v.key)).collect();
    counted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut hasher = Sha256::new();
    for resolved in counted {
        // Keys and one-line values contain no newline, so the lines are unambiguous.
        hasher.update(format!("{}={}\n", resolved.key, resolved.value).as_bytes());
    }
    HEXLOWER.encode(&hasher.finalize())
}
