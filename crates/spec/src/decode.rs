//! Reads a table into a type with serde, with positions for errors.

use super::collect::{KnownKeys, Unknown};
use super::diagnostics::{Problem, ProblemKind};
use super::source::Span;
use super::suggest::did_you_mean;
use super::tree::{Entry, Node, Table, Value};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Expected, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt;

pub(super) struct Decoded<T> {
    pub value: Result<T, Problem>,
    /// Index of the entry whose value is wrong.
    pub wrong: Option<usize>,
    pub unknown: Vec<Unknown>,
}

/// Reads the entries of the table at `path` as a `T`. Missing keys are reported at `header`.
pub(super) fn entries<T: DeserializeOwned>(entries: &[&Entry], path: &str, header: Span) -> Decoded<T> {
    let unknown = RefCell::new(Vec::new());
    let table = Value::Table(Table { entries: entries.iter().map(|entry| (*entry).clone()).collect() });
    let root = ValueDe { value: &table, header, path: path.to_owned(), place: None, unknown: &unknown };
    let mut wrong = None;
    let value = T::deserialize(root).map_err(|e| {
        wrong = e.entry;
        let kind = if e.absence { ProblemKind::Absence } else { ProblemKind::Local };
        Problem { kind, ..Problem::new(e.span.unwrap_or(header), e.message) }
    });
    Decoded { value, wrong, unknown: unknown.into_inner() }
}

/// An error from serde, with the innermost position at which it was caught.
#[derive(Debug)]
struct DecodeError {
    message: String,
    span: Option<Span>,
    /// Index of the table entry that it comes from.
    entry: Option<usize>,
    absence: bool,
}

impl DecodeError {
    fn new(message: String) -> Self {
        Self { message, span: None, entry: None, absence: false }
    }

    fn at(mut self, span: Span) -> Self {
        self.span.get_or_insert(span);
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string())
    }
    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {}", describe(found)))
    }
    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }
    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        Self::new(format!("expected {expected}, found {length} items"))
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown value{}", did_you_mean(variant, expected.iter().copied())))
    }
    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::new(format!("unknown key{}", did_you_mean(field, expected.iter().copied())))
    }
    fn missing_field(field: &'static str) -> Self {
        Self { absence: true, ..Self::new(format!("missing key `{field}`")) }
    }
}

/// As [`Value::describe`], if there is a corresponding value.
fn describe(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(s) => Value::String(s.to_owned()).describe(),
        Unexpected::Signed(i) => Value::Integer(i).describe(),
        Unexpected::Float(x) => Value::Float(x).describe(),
        Unexpected::Bool(b) => Value::Boolean(b).describe(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

type UnknownKeys = RefCell<Vec<Unknown>>;

struct MapDe<'a> {
    entries: &'a [Entry],
    next: usize,
    path: &'a str,
    /// Field names of the type being read, if serde provides them.
    known: KnownKeys,
    unknown: &'a UnknownKeys,
}

impl<'de> de::MapAccess<'de> for MapDe<'_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some(entry) = self.entries.get(self.next) else { return Ok(None) };
        let key = de::value::StrDeserializer::<DecodeError>::new(&entry.key);
        let at = self.next;
        seed.deserialize(key).map(Some).map_err(|e| DecodeError { entry: Some(at), ..e.at(entry.key_span) })
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, DecodeError> {
        let (entry, at) = (&self.entries[self.next], self.next);
        self.next += 1;
        let path =
            if self.path.is_empty() { entry.key.clone() } else { format!("{}.{}", self.path, entry.key) };
        let value = &entry.node.value;
        let place = Some((entry, &*self));
        seed.deserialize(ValueDe { value, header: entry.header, path, place, unknown: self.unknown }).map_err(
            |e| {
                let span = if e.absence { entry.header } else { entry.node.span };
                DecodeError { entry: Some(at), ..e.at(span) }
            },
        )
    }
}

struct ValueDe<'a> {
    value: &'a Value,
    header: Span,
    path: String,
    /// The entry being read, in its table.
    place: Option<(&'a Entry, &'a MapDe<'a>)>,
    unknown: &'a UnknownKeys,
}

impl ValueDe<'_> {
    fn map<'m>(&'m self, table: &'m Table, known: &'static [&'static str]) -> MapDe<'m> {
        let known = known.iter().map(|name| Cow::Borrowed(*name)).collect();
        MapDe { entries: &table.entries, next: 0, path: &self.path, known, unknown: self.unknown }
    }

    /// Reads a table from its entries, and any other value by its own type.
    fn any<'de, V: Visitor<'de>>(
        self,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::String(s) => visitor.visit_str(s),
            Value::Integer(i) => visitor.visit_i64(*i),
            Value::Float(x) => visitor.visit_f64(*x),
            Value::Boolean(b) => visitor.visit_bool(*b),
            Value::Datetime(d) => visitor.visit_string(d.to_string()),
            Value::Broken => visitor.visit_unit(),
            Value::Array(items) => visitor.visit_seq(SeqDe {
                items: items.iter(),
                path: &self.path,
                index: 0,
                unknown: self.unknown,
            }),
            Value::Table(table) => visitor.visit_map(self.map(table, known)),
        }
        .map_err(|e| e.at(self.header))
    }
}

impl<'de> de::Deserializer<'de> for ValueDe<'_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        self.any(&[], visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        self.any(fields, visitor)
    }

    /// The type of a component without keys.
    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Table(table) if table.entries.is_empty() => visitor.visit_unit(),
            _ => self.any(&[], visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::String(s) => visitor.visit_enum(de::value::StrDeserializer::new(s)),
            Value::Table(table) => {
                visitor.visit_enum(de::value::MapAccessDeserializer::new(self.map(table, &[])))
            }
            other => Err(DecodeError::new(format!("expected a name, found {}", other.describe()))),
        }
    }

    /// serde calls this if the type has no such field: the key is unknown.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if let Some((entry, map)) = self.place {
            self.unknown.borrow_mut().push(Unknown {
                table: map.path.to_owned(),
                key: entry.key.clone(),
                span: entry.key_span,
                known: map.known.clone(),
            });
        }
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit_struct seq tuple tuple_struct map identifier
    }
}

struct SeqDe<'a> {
    items: std::slice::Iter<'a, Node>,
    path: &'a str,
    index: usize,
    unknown: &'a UnknownKeys,
}

impl<'de> de::SeqAccess<'de> for SeqDe<'_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeError> {
        let Some(node) = self.items.next() else { return Ok(None) };
        let path = format!("{}.{}", self.path, self.index);
        self.index += 1;
        seed.deserialize(ValueDe {
            value: &node.value,
            header: node.span,
            path,
            place: None,
            unknown: self.unknown,
        })
        .map(Some)
        .map_err(|e| e.at(node.span))
    }
}
