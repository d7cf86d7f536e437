//! Reads a type's JSON Schema: its keys, their accepted values and their defaults. A struct with `#[derive(Deserialize,
//! JsonSchema)]` is therefore all that a table needs as its declaration.

use super::names::any_of;
use super::range::words;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value as Json};
use std::ops::Bound;

/// What is accepted, as text after "expected", if only the type's own `Deserialize` can check it.
pub(super) const EXPECTED: &str = "x-expected";
/// Some of the strings that are accepted, which editors and shells offer.
pub(super) const WORDS: &str = "x-words";
/// What a declaration that several names share says of each: an object of one line by name.
pub const SUMMARIES: &str = "x-summaries";
/// All strings that are accepted, if a component checks them itself.
pub const ONLY_WORDS: &str = "x-only-words";
/// `false` for a key, or a whole table, that results do not depend on.
const CHANGES_RESULTS: &str = "x-changes-results";

/// The schema of `T`, without references.
pub(super) fn of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Its keys, in order of declaration.
pub fn properties(schema: &Json) -> impl Iterator<Item = (&str, &Json)> {
    let map = schema.get("properties").and_then(Json::as_object);
    map.into_iter().flatten().map(|(key, schema)| (key.as_str(), schema))
}

/// Whether keys other than its properties are allowed.
pub(super) fn is_open(schema: &Json) -> bool {
    let others = schema.get("additionalProperties").is_some_and(|others| *others != Json::Bool(false));
    others || !matches!(only_type(schema), Some("object" | "null"))
}

/// Whether a table with this schema must set `key`.
pub fn is_required(schema: &Json, key: &str) -> bool {
    let required = schema.get("required").and_then(Json::as_array);
    required.is_some_and(|keys| keys.iter().any(|k| k == key))
}

/// Whether results depend on the key or the table.
pub fn changes_results(schema: &Json) -> bool {
    schema.get(CHANGES_RESULTS) != Some(&Json::Bool(false))
}

/// What is accepted, as text after "expected", if only the type's own `Deserialize` can check it.
pub fn expected(schema: &Json) -> Option<&str> {
    schema.get(EXPECTED)?.as_str()
}

/// Strings that are accepted, beside the names of a choice.
pub fn listed_words(schema: &Json) -> impl Iterator<Item = &str> {
    let lists = [WORDS, ONLY_WORDS].into_iter().filter_map(|key| schema.get(key)?.as_array());
    lists.flatten().filter_map(Json::as_str)
}

/// The default of a key, if it is a value.
pub fn default(schema: &Json) -> Option<toml::Value> {
    to_toml(schema.get("default")?)
}

/// The schema of a table in which every key may be left out and then has no default.
pub(super) fn without_defaults(mut schema: Json) -> Json {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("required");
    }
    let keys = schema.get_mut("properties").and_then(Json::as_object_mut);
    for key in keys.into_iter().flat_map(Map::values_mut).filter_map(Json::as_object_mut) {
        key.remove("default");
    }
    schema
}

pub(super) fn to_toml(value: &Json) -> Option<toml::Value> {
    Some(match value {
        Json::Null => return None,
        Json::Bool(b) => toml::Value::Boolean(*b),
        Json::Number(n) => match n.as_i64() {
            Some(i) => toml::Value::Integer(i),
            None => toml::Value::Float(n.as_f64()?),
        },
        Json::String(s) => toml::Value::String(s.clone()),
        Json::Array(items) => toml::Value::Array(items.iter().map(to_toml).collect::<Option<_>>()?),
        Json::Object(map) => {
            let entry = |(key, value): (&String, &Json)| Some((key.clone(), to_toml(value)?));
            toml::Value::Table(map.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}

/// The least and the greatest value.
pub type Range<T> = (Bound<T>, Bound<T>);

/// The kind of value that a key accepts.
pub enum ValueKind<'a> {
    /// `true` or `false`.
    Boolean,
    /// An integer in this range.
    Integer(Range<i64>),
    /// A number in this range.
    Number(Range<f64>),
    /// Any string.
    String,
    /// One of these names.
    Choice(Vec<&'a str>),
    /// With this length, if it is fixed.
    List(&'a Json, Option<usize>),
    /// A table with any keys.
    Map(&'a Json),
    /// A table with the declared keys, each with its schema.
    Table(&'a Map<String, Json>),
    /// Only the type's own `Deserialize` can check it.
    Own,
}

/// What a key with this schema accepts.
pub fn kind(schema: &Json) -> ValueKind<'_> {
    if schema.get(EXPECTED).is_some() {
        return ValueKind::Own;
    }
    if let Some(any) = schema.get("anyOf").and_then(Json::as_array) {
        let mut values = any.iter().filter(|schema| schema["type"] != "null");
        return match (values.next(), values.next()) {
            (Some(optional), None) => kind(optional),
            _ => ValueKind::Own,
        };
    }
    if let Some(names) = names(schema) {
        return ValueKind::Choice(names);
    }
    match only_type(schema) {
        Some("boolean") => ValueKind::Boolean,
        Some("integer") => {
            ValueKind::Integer(range(schema, |n| n.as_i64().or_else(|| Some(n.as_f64()? as i64))))
        }
        Some("number") => ValueKind::Number(range(schema, Json::as_f64)),
        Some("string") => ValueKind::String,
        Some("array") if schema["items"].is_object() => {
            let (least, most) = (schema["minItems"].as_u64(), schema["maxItems"].as_u64());
            ValueKind::List(&schema["items"], least.filter(|_| least == most).map(|n| n as usize))
        }
        Some("object") => match (&schema["properties"], &schema["additionalProperties"]) {
            (Json::Object(keys), _) => ValueKind::Table(keys),
            (_, values @ Json::Object(_)) => ValueKind::Map(values),
            _ => ValueKind::Own,
        },
        _ => ValueKind::Own,
    }
}

/// The one accepted type besides `null`.
fn only_type(schema: &Json) -> Option<&str> {
    match schema.get("type")? {
        Json::String(one) => Some(one),
        Json::Array(types) => {
            let mut types = types.iter().filter_map(Json::as_str).filter(|t| *t != "null");
            types.next().filter(|_| types.next().is_none())
        }
        _ => None,
    }
}

/// The names of a choice; `None` if other values are accepted too.
fn names(schema: &Json) -> Option<Vec<&str>> {
    if let Some(names) = schema.get("enum").and_then(Json::as_array) {
        return names.iter().filter(|name| !name.is_null()).map(Json::as_str).collect();
    }
    if let Some(name) = schema.get("const") {
        return Some(vec![name.as_str()?]);
    }
    let any = schema.get("oneOf")?.as_array()?;
    let each: Option<Vec<_>> = any.iter().filter(|schema| schema["type"] != "null").map(names).collect();
    Some(each?.concat())
}

fn range<T>(schema: &Json, read: impl Fn(&Json) -> Option<T>) -> Range<T> {
    let bound = |included: &str, excluded: &str| {
        let at = |key: &str| schema.get(key).and_then(&read);
        let open = || at(excluded).map(Bound::Excluded);
        at(included).map(Bound::Included).or_else(open).unwrap_or(Bound::Unbounded)
    };
    (bound("minimum", "exclusiveMinimum"), bound("maximum", "exclusiveMaximum"))
}

impl ValueKind<'_> {
    /// The text after "expected".
    pub fn words(&self) -> String {
        match self {
            ValueKind::Boolean => "true or false".to_owned(),
            ValueKind::Integer(range) => format!("an integer{}", words(range)),
            ValueKind::Number(range) => format!("a number{}", words(range)),
            ValueKind::String => "a string".to_owned(),
            ValueKind::Choice(names) => any_of(names),
            ValueKind::List(items, _) => format!("a list of {}", kind(items).plural()),
            ValueKind::Map(values) => format!("a table whose values are each {}", kind(values).words()),
            ValueKind::Table(_) => "a table".to_owned(),
            ValueKind::Own => "a value".to_owned(),
        }
    }

    pub(crate) fn plural(&self) -> &'static str {
        match self {
            ValueKind::Integer(_) => "integers",
            ValueKind::Number(_) => "numbers",
            ValueKind::String => "strings",
            ValueKind::Table(_) | ValueKind::Map(_) => "tables",
            _ => "values",
        }
    }
}
