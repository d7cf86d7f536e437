//! Keys whose values are one of a few names.

use super::diagnostics::Problem;
use super::fields::Fields;
use super::suggest::closest;
use super::tree::{Node, Value};

impl Fields<'_> {
    /// Reads `name`, on which the other keys of the table depend, and returns the one of `kinds` with that name. After a
    /// problem the other keys are not checked.
    pub fn kind<'k, K>(&mut self, kinds: impl Iterator<Item = (&'k str, K)>) -> Option<(&'k str, K)> {
        let mut kinds: Vec<(&str, K)> = kinds.collect();
        let Some(entry) = self.take("name") else {
            self.missing("name");
            self.ignore_rest();
            return None;
        };
        let is_named = |(name, _): &(&str, K)| matches!(&entry.node.value, Value::String(s) if s == name);
        if let Some(at) = kinds.iter().position(is_named) {
            self.note("name", entry.node.span, entry.node.value.to_toml());
            return Some(kinds.swap_remove(at));
        }
        self.wrong_choice(&entry.node, &kinds.iter().map(|(name, _)| *name).collect::<Vec<_>>());
        self.ignore_rest();
        None
    }

    /// As [`Fields::kind`] of components that only users' programs have; `what` is such a component.
    pub fn own_kind<'k, K>(&mut self, what: &str, kinds: Vec<(&'k str, K)>) -> Option<(&'k str, K)> {
        if kinds.is_empty() {
            self.problem("name", format!("this program has no user-defined {what} (docs/extending.md)"));
            self.ignore_rest();
            return None;
        }
        self.kind(kinds.into_iter())
    }

    /// Reads the tables `[[key]]` of such components: `read` gets the name in a table, the one of `kinds` with this name,
    /// and the table.
    pub fn own_tables<'k, K: Clone, T>(
        &mut self,
        key: &'static str,
        kinds: impl Iterator<Item = (&'k str, K)>,
        mut read: impl FnMut(&'k str, K, &mut Fields<'_>) -> Option<T>,
    ) -> Vec<T> {
        let (kinds, mut all): (Vec<(&str, K)>, _) = (kinds.collect(), Vec::new());
        self.tables(key, &mut |fields, _| {
            let Some((name, kind)) = fields.own_kind(key, kinds.clone()) else { return };
            all.extend(read(name, kind, fields));
        });
        all
    }

    /// Reports that the value of `key` is not one of `names`, and suggests the closest.
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
        let meant = best.map(|best| format!("\"{best}\""));
        self.push(Problem { meant, ..Problem::new(node.span, message) });
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
