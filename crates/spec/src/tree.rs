//! The tree of a spec: TOML values with their source positions.

use super::source::Span;

/// A value with its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub value: Value,
    /// The value's own text; for a table with a header, the header.
    pub span: Span,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(toml::value::Datetime),
    Array(Vec<Node>),
    Table(Table),
    /// Could not be read; already reported, so nothing more is said about it.
    Broken,
}

/// Entries in the order in which they were written.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub key: String,
    pub key_span: Span,
    pub node: Node,
    /// Where to report keys missing in the entry's table: its header, or its key if it is inline.
    pub header: Span,
}

impl Table {
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.key == key)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|e| e.key == key)
    }

    pub fn remove(&mut self, key: &str) -> Option<Entry> {
        let at = self.entries.iter().position(|e| e.key == key)?;
        Some(self.entries.remove(at))
    }

    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.key.as_str())
    }
}

impl Value {
    /// A description for messages: `the string "x"`, `3`, `a list`.
    pub fn describe(&self) -> String {
        match self {
            Value::String(s) if s.chars().count() > 40 => {
                format!("the string \"{}…\"", s.chars().take(40).collect::<String>().escape_debug())
            }
            Value::String(s) => format!("the string \"{}\"", s.escape_debug()),
            Value::Integer(i) => format!("{i}"),
            Value::Float(x) => toml::Value::Float(*x).to_string(),
            Value::Boolean(b) => format!("{b}"),
            Value::Datetime(d) => format!("the date {d}"),
            Value::Array(items) if items.is_empty() => "an empty list".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            Value::Table(_) => "a table".to_owned(),
            Value::Broken => "something unreadable".to_owned(),
        }
    }

    /// A value that was not written anywhere; `span` stands for all of it.
    pub fn of_toml(value: toml::Value, span: Span) -> Self {
        let node = |value| Node { value: Value::of_toml(value, span), span };
        match value {
            toml::Value::String(s) => Value::String(s),
            toml::Value::Integer(i) => Value::Integer(i),
            toml::Value::Float(x) => Value::Float(x),
            toml::Value::Boolean(b) => Value::Boolean(b),
            toml::Value::Datetime(d) => Value::Datetime(d),
            toml::Value::Array(items) => Value::Array(items.into_iter().map(node).collect()),
            toml::Value::Table(table) => {
                let entry = |(key, value)| Entry { key, key_span: span, node: node(value), header: span };
                Value::Table(Table { entries: table.into_iter().map(entry).collect() })
            }
        }
    }

    pub fn to_toml(&self) -> toml::Value {
        match self {
            Value::String(s) => toml::Value::String(s.clone()),
            Value::Integer(i) => toml::Value::Integer(*i),
            Value::Float(x) => toml::Value::Float(*x),
            Value::Boolean(b) => toml::Value::Boolean(*b),
            Value::Datetime(d) => toml::Value::Datetime(*d),
            Value::Array(items) => toml::Value::Array(items.iter().map(|n| n.value.to_toml()).collect()),
            Value::Table(table) => toml::Value::Table(
                table.entries.iter().map(|e| (e.key.clone(), e.node.value.to_toml())).collect(),
            ),
            Value::Broken => toml::Value::String(String::new()),
        }
    }
}
