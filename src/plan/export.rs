//! A plan as a spec of its own, and its hash.

use super::Plan;
use crate::spec::ResolvedValue;
use data_encoding::HEXLOWER;
use sha2::{Digest, Sha256};
use toml::{Table, Value};

impl Plan {
    /// The resolved job as a spec, every default written out: it resolves to a plan with the same values.
    pub fn to_toml(&self) -> String {
        let mut root = Table::new();
        for resolved in &self.values {
            let segments: Vec<&str> = resolved.key.split('.').collect();
            insert(&mut root, &segments, resolved.value.clone());
        }
        let body = toml::to_string_pretty(&root).expect("a table of TOML values is always TOML");
        format!("# Resolved by ddp-run; `ddp-run train` on this file runs the same job.\n{body}")
    }

    /// Every value of a table by its key in it, as JSON.
    pub fn table(&self, name: &str) -> serde_json::Map<String, serde_json::Value> {
        let in_table = |v: &ResolvedValue| {
            let key = v.key.strip_prefix(name)?.strip_prefix('.')?;
            Some((key.to_owned(), serde_json::to_value(&v.value).unwrap_or_default()))
        };
        self.values.iter().filter_map(in_table).collect()
    }
}

/// Puts `value` at a dotted path, making tables on the way; a number names an element of a list of tables.
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

/// Keys that results do not depend on; a trailing dot stands for a whole table.
const NO_EFFECT: [&str; 16] = [
    "name",
    "save_every",
    "launch.",
    "metrics.",
    "checkpoint.",
    "distributed.timeout",
    "distributed.init_timeout",
    "distributed.interface",
    "distributed.sockets",
    "dataset.root",
    "dataset.path",
    "dataset.cache",
    "dataset.url",
    "dataset.workers",
    "dataset.prefetch",
    "train.on_resize",
];

/// Whether results may depend on a key, by its dotted path.
pub(crate) fn changes_results(key: &str) -> bool {
    !NO_EFFECT.iter().any(|k| if k.ends_with('.') { key.starts_with(k) } else { key == *k })
}

/// SHA-256 over the other keys and their values, sorted by key.
pub(super) fn hash(values: &[ResolvedValue]) -> String {
    let mut counted: Vec<&ResolvedValue> = values.iter().filter(|v| changes_results(&v.key)).collect();
    counted.sort_by(|a, b| a.key.cmp(&b.key));
    let mut hasher = Sha256::new();
    for resolved in counted {
        // Neither a key nor a value on one line holds a newline, so the lines can't run into each other.
        hasher.update(format!("{}={}\n", resolved.key, resolved.value).as_bytes());
    }
    HEXLOWER.encode(&hasher.finalize())
}
