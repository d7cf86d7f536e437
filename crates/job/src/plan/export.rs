//! A plan as a spec, and its hash.

use super::Plan;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use spec::ResolvedValue;
use std::path::Path;
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

    /// The job as far as the use of its model may depend on it, as TOML that resolves. It may be given away with the weights: it
    /// names no observers, which may have tokens, nothing of the launch, and of files that results don't depend on only the names.
    pub fn usage_toml(&self) -> String {
        let mut root = Table::new();
        for resolved in self.values.iter().filter(|value| !is_of_the_start(&value.key)) {
            let segments: Vec<&str> = resolved.key.split('.').collect();
            let mut value = resolved.value.clone();
            let inert = resolved.key != "name" && !self.changes_results(&resolved.key);
            if inert || resolved.key.starts_with("model.pretrained") {
                without_places(&mut value);
            }
            insert(&mut root, &segments, value);
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

/// Keys of what watches a run, of how it is started, and of other runs; and of the tokenizer, which is in the encoding of the data, with what
/// is only for its documents.
fn is_of_the_start(key: &str) -> bool {
    ["metrics.sinks", "dataset.pack"].contains(&key)
        || ["observer", "launch", "sweep", "tokenizer"].contains(&key.split('.').next().unwrap_or_default())
}

/// Leaves the names of files, and addresses without a user and a query.
fn without_places(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some((scheme, rest)) = text.split_once("://") {
                let rest = rest.split(['?', '#']).next().unwrap_or_default();
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                let host = host.rsplit('@').next().unwrap_or_default();
                *text = format!("{scheme}://{host}{path}");
            } else if let Some(name) = Path::new(text.as_str()).file_name().filter(|_| text.contains('/')) {
                *text = name.to_string_lossy().into_owned();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(without_places),
        Value::Table(table) => table.iter_mut().for_each(|(_, value)| without_places(value)),
        _ => {}
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
