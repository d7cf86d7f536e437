//! What is valid at a place of a spec.

use super::key::{Choice, Key, keys};
use super::{EXTENDS, Reference, Table};
use crate::plan::one_line;
use spec::schema;
use spec::{Declaration, schema::ValueKind};

/// The name in the table at a path, if the spec gives one.
pub type Chosen<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Reference {
    /// The keys of the table at `path`, `name` included. `chosen` returns the name of the component; without one, the keys that all of
    /// them have. Empty if there is no such table.
    pub fn keys_at(&self, path: &str, chosen: Chosen<'_>) -> Vec<Key> {
        let Some(table) = self.table(path) else {
            return self.nested(path, chosen);
        };
        let mut keys = table.keys();
        if path.is_empty() {
            keys.insert(0, extends());
        }
        if !table.components.is_empty() {
            keys.push(table.name_key());
            let component = chosen(path).and_then(|name| Some(table.component(&name)?.keys()));
            keys.extend(component.unwrap_or_else(|| table.shared_keys()));
        }
        if path == "optimizer.group" {
            // A group has its optimizer's keys; what it does not set has the value of the table.
            keys.extend(self.keys_at("optimizer", chosen).into_iter().filter_map(Key::of_group));
        }
        keys
    }

    /// The keys of a table within a key, as of an augmentation.
    fn nested(&self, path: &str, chosen: Chosen<'_>) -> Vec<Key> {
        let Some((outer, name)) = path.rsplit_once('.').filter(|_| path.split('.').count() <= DEPTH) else {
            return Vec::new();
        };
        let Some(table) = self.table(outer) else { return Vec::new() };
        let component = chosen(outer).and_then(|name| table.component(&name));
        let components = table.components.iter().filter(|one| component.is_none_or(|c| c.name == one.name));
        let all = table.declarations.iter().chain(components.flat_map(|one| &one.declarations));
        all.filter_map(|declaration| within(declaration, name)).next().unwrap_or_default()
    }
}

/// Levels of tables in a spec.
const DEPTH: usize = 4;

fn within(declaration: &Declaration, name: &str) -> Option<Vec<Key>> {
    let (_, table) = schema::properties(&declaration.schema).find(|(key, _)| *key == name)?;
    // An optional one is the only value besides null.
    let inner = table["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
    match schema::kind(table) {
        ValueKind::Table(_) => Some(keys(inner.unwrap_or(table))),
        _ => None,
    }
}

fn extends() -> Key {
    let (name, about) = EXTENDS;
    Key {
        name: name.to_owned(),
        kind: "path".to_owned(),
        description: about.to_owned(),
        changes_results: true,
        ..Key::default()
    }
}

impl Table {
    /// `[table]` or `[[table]]`.
    pub fn heading(&self) -> String {
        match (self.path.as_str(), self.repeats) {
            ("", _) => "top level".to_owned(),
            (path, true) => format!("[[{path}]]"),
            (path, false) => format!("[{path}]"),
        }
    }

    /// The names of its components, or of its keys.
    pub fn names(&self) -> Vec<String> {
        match self.components.is_empty() {
            true => self.keys().into_iter().map(|key| key.name).collect(),
            false => self.components.iter().map(|component| component.name.clone()).collect(),
        }
    }

    /// The key that selects a component.
    pub fn name_key(&self) -> Key {
        let choice = |c: &super::Component| Choice { value: c.name.as_str().into(), about: c.about.clone() };
        let names: Vec<String> = self.names().iter().map(|name| format!("`{name}`")).collect();
        Key {
            name: "name".to_owned(),
            kind: "string".to_owned(),
            required: true,
            range: names.join(", "),
            description: "Selects the component; the other keys of the table are its own.".to_owned(),
            changes_results: true,
            choices: self.components.iter().map(choice).collect(),
            ..Key::default()
        }
    }

    /// The different declarations of a key in a table, each with the components that have it so.
    pub fn with_key(&self, name: &str) -> Vec<(Key, Vec<String>)> {
        let own = self.keys().into_iter().filter(|key| key.name == name);
        let mut found: Vec<(Key, Vec<String>)> = own.map(|key| (key, Vec::new())).collect();
        for component in &self.components {
            for key in component.keys().into_iter().filter(|key| key.name == name) {
                match found.iter_mut().find(|(known, _)| *known == key) {
                    Some((_, components)) => components.push(component.name.clone()),
                    None => found.push((key, vec![component.name.clone()])),
                }
            }
        }
        found
    }

    /// All names that may follow the table's path.
    pub fn known(&self) -> Vec<String> {
        let mut known: Vec<String> = self.keys().into_iter().map(|key| key.name).collect();
        for component in &self.components {
            known.push(component.name.clone());
            known.extend(component.keys().into_iter().map(|key| key.name));
        }
        known.sort();
        known.dedup();
        known
    }
}

impl Key {
    /// The optimizer's key in the form of a group, if groups have it.
    pub fn of_group(self) -> Option<Key> {
        let inherited = !["name", "group"].contains(&self.name.as_str());
        inherited.then_some(Key { required: false, default: None, ..self })
    }

    /// `list of 2 floats; each at least 0 and below 1; default [0.9, 0.999]`.
    pub fn facts(&self) -> String {
        let mut facts = vec![self.kind.clone()];
        facts.extend(Some(self.range.clone()).filter(|range| !range.is_empty()));
        match &self.default {
            _ if self.required => facts.push("required".to_owned()),
            Some(default) => facts.push(format!("default {}", one_line(default))),
            None => {}
        }
        if !self.changes_results {
            facts.push("does not change results".to_owned());
        }
        facts.join("; ")
    }
}

/// A dotted path without the indices of lists: `scheduler.0.name` as `scheduler.name`.
pub fn without_indices(path: &str) -> String {
    let parts: Vec<&str> =
        path.split('.').filter(|part| part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit())).collect();
    parts.join(".")
}
