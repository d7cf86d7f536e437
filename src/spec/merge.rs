//! Laying one tree over another: tables merge key by key, anything else is replaced whole.

use super::tree::{Table, Value};

/// Lays `over` onto `base`. The later key's place is the one that problems point to.
pub(super) fn merge(base: &mut Table, over: Table) {
    for entry in over.entries {
        let Some(present) = base.get_mut(&entry.key) else {
            base.entries.push(entry);
            continue;
        };
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
