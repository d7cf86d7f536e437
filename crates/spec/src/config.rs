//! Reads tables into structs whose declarations contain all facts about a key: type and range or choices determine the
//! error messages, the default applies if the key is not set, and a description and the effect on results are attached.

use super::collect::Declaration;
use super::decode;
use super::diagnostics::{Problem, ProblemKind};
use super::fields::{Fields, Inherited};
use super::schema::{self, ValueKind};
use super::source::Origin;
use super::tree::{Entry, Node, Table, Value};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value as Json};
use std::borrow::Cow;
use std::ops::RangeBounds;

static EMPTY: Table = Table { entries: Vec::new() };

impl<'a> Fields<'a> {
    /// Reads the keys of `T`, each of which has a default: an invalid value is reported and replaced by the default. A
    /// required key (`#[schemars(extend("required" = [..]))]`) has a default too, as a placeholder after a problem.
    pub fn config<T: DeserializeOwned + JsonSchema + Default>(&mut self) -> T {
        self.parse().unwrap_or_default()
    }

    /// As [`Fields::config`] if the keys of `T` apply; otherwise they are not read, and so unknown if they are set.
    pub fn config_if<T: DeserializeOwned + JsonSchema + Default>(&mut self, applies: bool) -> Option<T> {
        if applies {
            return Some(self.config());
        }
        self.declare(schema::of::<T>());
        None
    }

    /// Reads the keys of `T`; other keys of the table are left for other readers. `None` after a problem.
    pub fn parse<T: DeserializeOwned + JsonSchema>(&mut self) -> Option<T> {
        let schema = schema::of::<T>();
        let mut set = self.declared(&schema);
        let open = schema::is_open(&schema);
        if open {
            set.extend(self.rest());
        }
        let inherited = self.inherited_entries(&schema);
        let entries = inherited.iter().chain(set).collect();
        let decoded = self.decoded(&schema, entries);
        self.declare(schema);
        // A missing required key, or its wrong value, has already been reported.
        let reported = |problem: &Problem| problem.kind == ProblemKind::Absence && (self.muted || !open);
        decoded
            .map_err(|problem| {
                if !reported(&problem) {
                    self.push(problem)
                }
            })
            .ok()
    }

    /// Reads the keys of `T` that are set here. All others have the values of `base`, a `T` by its keys. `None` after a
    /// problem.
    pub fn over<T: DeserializeOwned + JsonSchema>(&mut self, base: &Map<String, Json>) -> Option<T> {
        let schema = schema::without_defaults(schema::of::<T>());
        let set = self.declared(&schema);
        let inherited = |(key, value): (&String, &Json)| {
            let value = Value::of_toml(schema::to_toml(value)?, self.header);
            let node = Node { value, span: self.header };
            let entry = Entry { key: key.clone(), key_span: self.header, node, header: self.header };
            set.iter().all(|own| own.key != *key).then_some(entry)
        };
        let inherited: Vec<Entry> = base.iter().filter_map(inherited).collect();
        let decoded = self.decoded(&schema, inherited.iter().chain(set.iter().copied()).collect());
        decoded.map_err(|problem| self.push(problem)).ok()
    }

    /// Decodes entries that match their schemas. A value that only its type's `Deserialize` rejects is reported, and the
    /// others are read without it.
    fn decoded<T: DeserializeOwned>(&self, schema: &Json, mut entries: Vec<&Entry>) -> Result<T, Problem> {
        loop {
            let decoded = decode::entries::<T>(&entries, self.path(), self.header);
            match (decoded.wrong, decoded.value) {
                (Some(at), Err(problem)) if schema["properties"].get(&entries[at].key).is_some() => {
                    let entry = entries.remove(at);
                    match schema::expected(&schema["properties"][&entry.key]) {
                        Some(expected) => self.wrong(&entry.node, expected),
                        None => self.push(problem),
                    }
                }
                (_, value) => {
                    self.out.unknown.borrow_mut().extend(decoded.unknown);
                    return value;
                }
            }
        }
    }

    /// Declared keys that are not set, with the values of the file that the table inherits from.
    fn inherited_entries(&self, schema: &Json) -> Vec<Entry> {
        let Some(Inherited { values, from }) = &self.inherited else { return Vec::new() };
        let mut entries = Vec::new();
        for (key, of_key) in schema::properties(schema) {
            let Some(value) = values.get(key) else { continue };
            let value = schema::to_toml(value).map(|value| in_floats(value, of_key));
            let entry = match (self.entry(key), value) {
                (Some(entry), Some(value)) if !is_same(&entry.node.value.to_toml(), &value) => {
                    let problem = format!("contradicts `{key} = {value}` in {from}");
                    self.push(Problem::new(entry.node.span, problem));
                    continue;
                }
                (Some(entry), None) => {
                    self.push(Problem::new(entry.node.span, format!("contradicts {from}, which has none")));
                    continue;
                }
                (Some(_), Some(_)) | (None, None) => continue,
                (None, Some(value)) => {
                    let node = Node { value: Value::of_toml(value.clone(), self.header), span: self.header };
                    let before = self.out.problems.borrow().len();
                    if !self.conforms(&node, of_key) {
                        for problem in &mut self.out.problems.borrow_mut()[before..] {
                            problem.message = format!("`{key}` in {from}: {}", problem.message);
                        }
                        continue;
                    }
                    self.record(key, value, Origin::Base(from.clone()));
                    Entry { key: key.to_owned(), key_span: self.header, node, header: self.header }
                }
            };
            entries.push(entry);
        }
        entries
    }

    fn declare(&self, schema: Json) {
        self.out.declarations.borrow_mut().push(Declaration { table: self.path().to_owned(), schema });
    }

    /// The entries of the declared keys whose values match their schemas. Records these values, and the defaults of
    /// unset keys.
    fn declared(&mut self, schema: &Json) -> Vec<&'a Entry> {
        let mut entries = Vec::new();
        for (key, of_key) in schema::properties(schema) {
            self.know(Cow::Owned(key.to_owned()));
            self.reserve(key);
            if !schema::changes_results(schema) || !schema::changes_results(of_key) {
                self.without_effect(&[key]);
            }
            match self.entry(key) {
                Some(entry) if self.conforms(&entry.node, of_key) => {
                    let value = match (schema::kind(of_key), &entry.node.value) {
                        (ValueKind::Number(_), Value::Integer(i)) => toml::Value::Float(*i as f64),
                        (_, value) => value.to_toml(),
                    };
                    self.note(key, entry.node.span, value);
                    entries.push(entry);
                }
                Some(_) => {}
                None if schema::is_required(schema, key) => self.missing(key),
                None => {
                    if let Some(default) = schema::default(of_key) {
                        self.record(key, default, Origin::Default);
                    }
                }
            }
        }
        entries
    }

    /// The entries that nothing has read so far, for a type that accepts any key.
    fn rest(&mut self) -> Vec<&'a Entry> {
        let table = self.table.unwrap_or(&EMPTY);
        let rest = table.entries.iter().filter(|e| !self.known.iter().any(|k| *k == e.key));
        let rest: Vec<&Entry> = rest.collect();
        for entry in &rest {
            self.note(&entry.key, entry.node.span, entry.node.value.to_toml());
        }
        self.ignore_rest();
        rest
    }

    /// The value of a key whose default depends on other keys: `read` if it is set, else `default`.
    pub fn or_default<T: Serialize>(&self, key: &str, read: Option<T>, default: T) -> T {
        read.unwrap_or_else(|| {
            if !self.has(key)
                && let Ok(value) = toml::Value::try_from(&default)
            {
                self.record(key, value, Origin::Default);
            }
            default
        })
    }

    /// Whether a value matches its schema; reports every part that does not.
    fn conforms(&self, node: &Node, schema: &Json) -> bool {
        let kind = schema::kind(schema);
        let fits = match (&kind, &node.value) {
            (_, Value::Broken) => false,
            // serde has no dates: it would read one as its text.
            (ValueKind::Own, Value::Datetime(_)) => schema::expected(schema).is_none(),
            (ValueKind::Own, _)
            | (ValueKind::Boolean, Value::Boolean(_))
            | (ValueKind::String, Value::String(_)) => true,
            (ValueKind::Integer(range), Value::Integer(i)) => range.contains(i),
            (ValueKind::Number(range), value) => number(value, range).is_some(),
            (ValueKind::Choice(names), Value::String(name)) if names.contains(&name.as_str()) => true,
            (ValueKind::Choice(names), _) => {
                self.wrong_choice(node, names);
                return false;
            }
            (ValueKind::List(items, count), Value::Array(nodes)) => {
                let each = nodes.iter().filter(|node| !self.conforms(node, items)).count() == 0;
                if let Some(count) = count.filter(|count| each && *count != nodes.len()) {
                    let things = schema::kind(items).plural();
                    let message = format!("expected {count} {things}, found {}", nodes.len());
                    self.push(Problem::new(node.span, message));
                    return false;
                }
                return each;
            }
            (ValueKind::Map(values), Value::Table(table)) => {
                return table.entries.iter().filter(|e| !self.conforms(&e.node, values)).count() == 0;
            }
            (ValueKind::Table(keys), Value::Table(table)) => {
                let known = table.entries.iter().filter_map(|e| Some((e, keys.get(&e.key)?)));
                return known.filter(|(e, schema)| !self.conforms(&e.node, schema)).count() == 0;
            }
            _ => false,
        };
        if !fits {
            let expected = schema::expected(schema).map_or_else(|| kind.words(), str::to_owned);
            self.wrong(node, &expected);
        }
        fits
    }

    fn wrong(&self, node: &Node, expected: &str) {
        if !matches!(node.value, Value::Broken) {
            self.push(Problem::new(
                node.span,
                format!("expected {expected}, found {}", node.value.describe()),
            ));
        }
    }
}

/// The number, if it is finite and in `range`; integers count as numbers.
fn number(value: &Value, range: &impl RangeBounds<f64>) -> Option<f64> {
    let x = match value {
        Value::Integer(i) => *i as f64,
        Value::Float(x) => *x,
        _ => return None,
    };
    (x.is_finite() && range.contains(&x)).then_some(x)
}

/// The value with floats where the schema has numbers, as they are recorded.
fn in_floats(value: toml::Value, schema: &Json) -> toml::Value {
    match (schema::kind(schema), value) {
        (ValueKind::Number(_), toml::Value::Integer(i)) => toml::Value::Float(i as f64),
        (ValueKind::Table(keys), toml::Value::Table(table)) => {
            let key = |(key, value)| match keys.get(&key) {
                Some(schema) => (key, in_floats(value, schema)),
                None => (key, value),
            };
            toml::Value::Table(table.into_iter().map(key).collect())
        }
        (_, value) => value,
    }
}

/// Whether two values are equal; an integer equals the number.
fn is_same(a: &toml::Value, b: &toml::Value) -> bool {
    match (a, b) {
        (toml::Value::Integer(a), toml::Value::Float(b))
        | (toml::Value::Float(b), toml::Value::Integer(a)) => *a as f64 == *b,
        (toml::Value::Table(a), toml::Value::Table(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| is_same(a, b)))
        }
        (a, b) => a == b,
    }
}
