//! Merges one tree over another: tables are merged key by key, anything else is replaced.

use super::tree::{Table, Value};
use std::collections::HashMap;

/// Merges `over` into `base`. Problems point at the overriding key.
pub(super) fn merge(base: &mut Table, over: Table) {
    let places: HashMap<String, usize> =
        base.entries.iter().enumerate().map(|(i, entry)| (entry.key.clone(), i)).collect();
    for entry in over.entries {
        let Some(&place) = places.get(&entry.key) else {
            base.entries.push(entry);
            continue;
        };
        let present = &mut base.entries[place];
        match (&mut present.node.value, entry.node.value) {
            (Value::Table(below), Value::Table(above)) => {
                merge(below, above);
                present.node.span = entry.node.span;
            }
            (below, above) => {
                *below = above;
                present.node.span = entry.node.span;
            }
        }
        present.key_span = entry.key_span;
        present.header = entry.header;
    }
}
