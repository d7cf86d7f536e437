//! What a spec may say: its tables, the components that a `name` selects, and the keys of both. It is collected from the
//! declarations that reading a spec makes, so it has the components of a user's program too. `ddp-run schema`, `list`,
//! `explain` and `lsp` show it, shells complete by it, and docs/spec.md is generated from it.

mod draft4;
mod json_schema;
mod key;
mod lookup;
#[cfg(test)]
mod round_trip_tests;
#[cfg(test)]
mod tests;

pub use json_schema::json_schema;
pub use key::{Choice, Key, description, keys, section, unlinked};
pub use lookup::without_indices;

use crate::plan::{Plan, table_rank};
use crate::registry::Registry;
use serde_json::{Value, json};
use spec::schema::{ONLY_WORDS, SUMMARIES};
use spec::{Declaration, JobTree};

/// Tables of which a spec may have several, as `[[table]]`.
const REPEATING: [&str; 5] = ["scheduler", "metric", "transform", "observer", "optimizer.group"];
/// The keys of the communication hook. It is a separate table only in programs with hooks that have keys.
const HOOK: &str = "distributed.hook";
/// A key that reading a spec takes away before it is declared.
pub const EXTENDS: (&str, &str) = (
    "extends",
    "Another spec, relative to this file, that this one changes. Tables are merged, lists are replaced.",
);

/// All tables of a spec.
pub struct Reference {
    /// The top level first, then in the order of plans.
    pub tables: Vec<Table>,
    /// What `distributed.comm_hook` selects; the keys are those of `[distributed.hook]`.
    pub hooks: Vec<Component>,
    /// Tables that exist only if the program has components of this kind, and this program has none.
    pub absent: Vec<&'static str>,
}

/// One table.
pub struct Table {
    /// Dotted: `optimizer.group`; empty for the top level.
    pub path: String,
    /// Whether a spec may have several of them, as `[[table]]`.
    pub repeats: bool,
    /// If the table's `name` selects one.
    pub components: Vec<Component>,
    /// The declarations of a table without components.
    pub declarations: Vec<Declaration>,
}

/// What the `name` of a table selects.
#[derive(Default)]
pub struct Component {
    /// Name in specs: the value of `name`, or of `distributed.comm_hook`.
    pub name: String,
    /// The comment on its struct; empty without one.
    pub about: String,
    /// One line about it: its own if it shares a struct with others, else the first sentence of `about`.
    pub summary: String,
    /// The declarations of all keys except `name`.
    pub declarations: Vec<Declaration>,
}

impl Reference {
    /// With the components of `registry`.
    pub fn new(registry: &Registry) -> Self {
        let names = registry.names();
        let has_components = |path: &str| names.iter().any(|(table, _)| *table == path);
        let mut hooks = hooks(registry);
        let mut tables: Vec<Table> = Vec::new();
        for mut declaration in declarations("", registry).into_iter().filter(|d| !has_components(&d.table)) {
            if declaration.table == "distributed" && !declaration.schema["properties"]["comm_hook"].is_null()
            {
                let key = &mut declaration.schema["properties"]["comm_hook"];
                hooks.iter_mut().for_each(|hook| hook.summarise(key));
                key["enum"] = json!(hooks.iter().map(|hook| &hook.name).collect::<Vec<_>>());
            }
            if declaration.table == "metrics" && !declaration.schema["properties"]["sinks"].is_null() {
                let observers = names.iter().find(|(table, _)| *table == "observer").map(|(_, names)| names);
                declaration.schema["properties"]["sinks"]["items"][ONLY_WORDS] = json!(observers);
            }
            match tables.iter_mut().find(|table| table.path == declaration.table) {
                Some(table) => table.declarations.push(declaration),
                None => tables.push(Table {
                    repeats: REPEATING.contains(&declaration.table.as_str()),
                    path: declaration.table.clone(),
                    components: Vec::new(),
                    declarations: vec![declaration],
                }),
            }
        }
        // A program has components of some kinds only if they are its user's.
        let (named, absent): (Vec<_>, Vec<_>) = names.into_iter().partition(|(_, names)| !names.is_empty());
        let absent = absent.into_iter().map(|(path, _)| path).collect();
        tables.extend(named.into_iter().map(|(path, names)| Table {
            path: path.to_owned(),
            repeats: REPEATING.contains(&path),
            components: components(path, &names, registry),
            declarations: Vec::new(),
        }));
        let of_hooks: Vec<Declaration> = hooks.iter().flat_map(|hook| &hook.declarations).cloned().collect();
        if !of_hooks.is_empty() {
            tables.push(Table {
                path: HOOK.to_owned(),
                repeats: false,
                components: Vec::new(),
                declarations: of_hooks,
            });
        }
        tables.sort_by_cached_key(|table| (table_rank(&table.path), table.path.clone()));
        Self { tables, hooks, absent }
    }

    /// The table at this path.
    pub fn table(&self, path: &str) -> Option<&Table> {
        self.tables.iter().find(|table| table.path == path)
    }
}

impl Table {
    /// The keys of a table without components.
    pub fn keys(&self) -> Vec<Key> {
        all_keys(&self.declarations)
    }

    /// The keys that all components have.
    pub fn shared_keys(&self) -> Vec<Key> {
        let Some((first, others)) = self.components.split_first() else { return Vec::new() };
        let shared = |key: &Key| others.iter().all(|component| component.keys().contains(key));
        first.keys().into_iter().filter(shared).collect()
    }

    /// The component of this name.
    pub fn component(&self, name: &str) -> Option<&Component> {
        self.components.iter().find(|component| component.name == name)
    }
}

impl Component {
    /// Sets the one line about it from a declaration that may have one.
    fn summarise(&mut self, schema: &Value) {
        let own = schema[SUMMARIES][&self.name].as_str();
        let line = own.or_else(|| Some(first_sentence(&self.about)).filter(|line| !line.is_empty()));
        if let Some(line) = line {
            self.summary = unlinked(line);
        }
    }

    /// Its keys without `name`.
    pub fn keys(&self) -> Vec<Key> {
        all_keys(&self.declarations)
    }
}

/// Up to the first end of a sentence.
fn first_sentence(text: &str) -> &str {
    let ends = text.match_indices(". ").map(|(at, _)| at + 1);
    let end = ends.into_iter().find(|end| !text[..*end].ends_with("et al."));
    &text[..end.unwrap_or(text.len())]
}

/// The components of a table.
fn components(table: &str, names: &[&str], registry: &Registry) -> Vec<Component> {
    let of = |name: &&str| {
        let spec = format!("[{table}]\nname = {}\n", toml::Value::from(*name));
        let mut declarations = declarations(&spec, registry);
        declarations.retain(|declaration| declaration.table == table);
        Component { name: (*name).to_owned(), declarations, ..Component::default() }
    };
    let mut all: Vec<Component> = names.iter().map(of).collect();
    // What every component of the table declares says nothing of one.
    let shared = |schema: &Value| {
        all.len() > 1 && all.iter().all(|one| one.declarations.iter().any(|other| other.schema == *schema))
    };
    let own = |one: &Component| {
        let own = |d: &&Declaration| section(&d.schema).is_none() && !shared(&d.schema);
        one.declarations.iter().find(own).map(|own| own.schema.clone()).unwrap_or_default()
    };
    let own: Vec<Value> = all.iter().map(own).collect();
    for (one, own) in all.iter_mut().zip(&own) {
        one.about = description(own);
        one.summarise(own);
    }
    all
}

/// The communication hooks, the plain all-reduce first.
fn hooks(registry: &Registry) -> Vec<Component> {
    let of = |name: &str| {
        let spec = format!("[distributed]\ncomm_hook = {}\n", toml::Value::from(name));
        let mut declarations = declarations(&spec, registry);
        declarations.retain(|declaration| declaration.table == HOOK);
        let own = declarations.first().map(|own| own.schema.clone()).unwrap_or_default();
        let mut hook = Component {
            name: name.to_owned(),
            about: description(&own),
            declarations,
            ..Component::default()
        };
        hook.summarise(&own);
        hook
    };
    std::iter::once("none").chain(registry.comm_hook_names()).map(of).collect()
}

fn all_keys(declarations: &[Declaration]) -> Vec<Key> {
    declarations.iter().flat_map(|declaration| keys(&declaration.schema)).collect()
}

/// What reading this text declares.
fn declarations(text: &str, registry: &Registry) -> Vec<Declaration> {
    Plan::declarations(&JobTree::parse("reference", text, &[]), registry)
}
