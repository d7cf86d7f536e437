//! Schemas as schemars writes them (Draft 2020-12), in Draft 4 of JSON Schema, which editors' TOML plug-ins (taplo) read.

use super::key::{description, unlinked, variants};
use serde_json::{Map, Value as Json, json};
use spec::schema::{self, ValueKind};

/// Keywords that both drafts have.
const SHARED: [&str; 5] = ["minimum", "maximum", "minItems", "maxItems", "required"];

/// The schema of one value. Defaults that are not values, formats and the annotations of this program are left out.
pub fn value(schema: &Json) -> Json {
    let mut out = shape(schema);
    let mut about = unlinked(&description(schema));
    if let Some(expected) = schema::expected(schema) {
        about = format!("{about} Expected: {expected}.").trim().to_owned();
    }
    if !about.is_empty() {
        out.insert("description".to_owned(), about.into());
    }
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        out.insert("default".to_owned(), default.clone());
    }
    Json::Object(out)
}

/// What is accepted.
fn shape(schema: &Json) -> Map<String, Json> {
    if let ValueKind::Choice(names) = schema::kind(schema) {
        return choice(&names, schema);
    }
    let mut out = Map::new();
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|key| schema.get(key)?.as_array());
    if let Some(alternatives) = alternatives {
        let mut values: Vec<Json> =
            alternatives.iter().filter(|schema| schema["type"] != "null").map(value).collect();
        if values.len() > 1 {
            out.insert("anyOf".to_owned(), values.into());
        } else if let Some(Json::Object(only)) = values.pop() {
            out = only;
        }
        return out;
    }
    if let Some(name) = schema.get("const") {
        out.insert("enum".to_owned(), json!([name]));
    }
    if let Some(kind) = schema.get("type").and_then(types) {
        out.insert("type".to_owned(), kind);
    }
    if let Some(words) = schema.get(schema::ONLY_WORDS) {
        out.insert("enum".to_owned(), words.clone());
    }
    let shared = SHARED.into_iter().filter_map(|key| Some((key.to_owned(), schema.get(key)?.clone())));
    out.extend(shared);
    for (bound, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        if let Some(limit) = schema.get(exclusive) {
            out.insert(bound.to_owned(), limit.clone());
            out.insert(exclusive.to_owned(), true.into());
        }
    }
    for key in ["items", "additionalProperties"] {
        match schema.get(key) {
            Some(inner @ Json::Object(_)) => out.insert(key.to_owned(), value(inner)),
            Some(Json::Bool(allowed)) => out.insert(key.to_owned(), (*allowed).into()),
            _ => None,
        };
    }
    if schema.get("properties").is_some() {
        out.insert("properties".to_owned(), Json::Object(properties(schema)));
    }
    out
}

/// The schemas of a table's keys.
pub fn properties(schema: &Json) -> Map<String, Json> {
    let of_key = |(name, key): (&str, &Json)| {
        let mut of_key = value(key);
        if let Some(of_key) = of_key.as_object_mut().filter(|_| schema::is_required(schema, name)) {
            // A placeholder.
            of_key.remove("default");
        }
        (name.to_owned(), of_key)
    };
    schema::properties(schema).map(of_key).collect()
}

fn choice(names: &[&str], schema: &Json) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("enum".to_owned(), json!(names));
    let inner = schema.get("anyOf").and_then(Json::as_array).and_then(|any| any.first()).unwrap_or(schema);
    let about: Vec<String> = variants(inner).into_iter().map(|one| unlinked(&description(one))).collect();
    if about.len() == names.len() && about.iter().any(|about| !about.is_empty()) {
        // taplo shows them beside the values.
        out.insert("x-taplo".to_owned(), json!({ "docs": { "enumValues": about } }));
    }
    out
}

/// TOML has no null.
fn types(types: &Json) -> Option<Json> {
    let mut names: Vec<&Json> = match types {
        Json::Array(names) => names.iter().filter(|name| **name != "null").collect(),
        one => vec![one],
    };
    match names.len() {
        0 => None,
        1 => names.pop().cloned(),
        _ => Some(json!(names)),
    }
}
