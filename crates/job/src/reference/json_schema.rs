//! The JSON Schema of specs, for editors and other checkers of TOML.

use super::{Component, EXTENDS, HOOK, Key, Reference, Table, draft4, unlinked};
use serde_json::{Map, Value as Json, json};
use spec::Declaration;

/// The tables that a spec without `extends` must have.
const REQUIRED: [&str; 3] = ["model", "dataset", "optimizer"];

/// The schema, in Draft 4. It accepts what `ddp-run check` accepts, and finds unknown keys and names, wrong types, numbers out of
/// range and missing keys. Only `ddp-run check` knows values with a syntax, and what keys mean together.
pub fn json_schema(reference: &Reference) -> Json {
    let (mut properties, mut shared) = (Map::new(), Map::new());
    let (extends, about) = EXTENDS;
    properties.insert(extends.to_owned(), json!({ "type": "string", "description": about }));
    for table in &reference.tables {
        match table.path.as_str() {
            "" => properties.extend(keys(&table.declarations)),
            // Their keys depend on the optimizer, and on the hook.
            "optimizer.group" | HOOK => {}
            path => drop(properties.insert(path.to_owned(), schema_of(table, reference, &mut shared))),
        }
    }
    json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "title": "Job spec of ddp-run",
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
        // What is missing here may be in the other spec.
        "anyOf": [{ "required": [extends] }, complete(reference)],
        "definitions": shared,
    })
}

/// A table, with nothing required. What is used twice goes to `shared`.
fn schema_of(table: &Table, reference: &Reference, shared: &mut Map<String, Json>) -> Json {
    if table.components.is_empty() {
        let mut keys = keys(&table.declarations);
        if let Some(hook) =
            hook(reference).filter(|_| HOOK.rsplit_once('.').is_some_and(|(outer, _)| outer == table.path))
        {
            keys.insert("hook".to_owned(), hook);
        }
        return object(keys);
    }
    let names: Vec<&str> = table.components.iter().map(|component| component.name.as_str()).collect();
    let mut variants: Vec<Json> =
        table.components.iter().map(|component| variant(component, table, reference, shared)).collect();
    variants.push(json!({ "title": "a table that another spec completes", "not": { "required": ["name"] } }));
    let one = json!({
        "type": "object",
        "properties": { "name": { "type": "string", "enum": names } },
        "oneOf": variants,
    });
    if table.repeats { once_or_more(&table.path, one, shared) } else { one }
}

/// `[distributed.hook]`, if a hook has keys: those of one of them.
fn hook(reference: &Reference) -> Option<Json> {
    let of = |hook: &Component| {
        let mut one = object(keys(&hook.declarations));
        one["title"] = json!(hook.name);
        one
    };
    let with_keys = reference.hooks.iter().filter(|hook| !hook.declarations.is_empty());
    let variants: Vec<Json> = with_keys.map(of).collect();
    (!variants.is_empty()).then(|| json!({ "anyOf": variants }))
}

/// A table whose `name` is that of `component`.
fn variant(
    component: &Component,
    table: &Table,
    reference: &Reference,
    shared: &mut Map<String, Json>,
) -> Json {
    let mut properties = Map::new();
    properties.insert("name".to_owned(), json!({ "enum": [component.name] }));
    let own = keys(&component.declarations);
    let group = reference.table("optimizer.group").filter(|_| table.path == "optimizer");
    if let Some(group) = group {
        let mut of_group = keys(&group.declarations);
        // What a group does not set has the value of the table.
        of_group.extend(own.iter().filter(|(key, _)| *key != "group").map(|(key, schema)| {
            let mut schema = schema.clone();
            schema.as_object_mut().map(|schema| schema.remove("default"));
            (key.clone(), schema)
        }));
        properties.extend(own);
        let name = format!("group-of-{}", component.name);
        let mut of_group = object(of_group);
        // Lists are replaced by `extends`, so a group is whole.
        of_group["required"] = json!(required(&group.keys()));
        properties.insert("group".to_owned(), once_or_more(&name, of_group, shared));
    } else {
        properties.extend(own);
    }
    let mut variant = object(properties);
    let about = unlinked(&component.about);
    for (key, value) in
        [("title", json!(component.name)), ("description", json!(about)), ("required", json!(["name"]))]
    {
        if value != "" {
            variant[key] = value;
        }
    }
    variant
}

/// What must be there in a spec that is complete by itself.
fn complete(reference: &Reference) -> Json {
    let mut required: Vec<String> = reference.table("").map(|top| required(&top.keys())).unwrap_or_default();
    required.extend(REQUIRED.map(str::to_owned));
    let mut properties = Map::new();
    for table in
        reference.tables.iter().filter(|table| !["", "optimizer.group", HOOK].contains(&table.path.as_str()))
    {
        let complete = match table.components.is_empty() {
            true => requiring(self::required(&table.keys())),
            false => named(table),
        };
        let complete = complete.map(|complete| if table.repeats { one_or_many(complete) } else { complete });
        properties.extend(complete.map(|complete| (table.path.clone(), complete)));
    }
    json!({ "required": required, "properties": properties })
}

/// A table with `name`, and the keys that the component of this name requires.
fn named(table: &Table) -> Option<Json> {
    let mut simple = Vec::new();
    let mut variants = Vec::new();
    for component in &table.components {
        let mut keys = required(&component.keys());
        if keys.is_empty() {
            simple.push(component.name.as_str());
            continue;
        }
        keys.insert(0, "name".to_owned());
        variants.push(json!({ "properties": { "name": { "enum": [component.name] } }, "required": keys }));
    }
    if variants.is_empty() {
        return requiring(vec!["name".to_owned()]);
    }
    if !simple.is_empty() {
        variants.push(json!({ "properties": { "name": { "enum": simple } }, "required": ["name"] }));
    }
    Some(json!({ "oneOf": variants }))
}

fn requiring(keys: Vec<String>) -> Option<Json> {
    (!keys.is_empty()).then(|| json!({ "required": keys }))
}

fn required(keys: &[Key]) -> Vec<String> {
    keys.iter().filter(|key| key.required).map(|key| key.name.clone()).collect()
}

fn keys(declarations: &[Declaration]) -> Map<String, Json> {
    declarations.iter().flat_map(|declaration| draft4::properties(&declaration.schema)).collect()
}

fn object(properties: Map<String, Json>) -> Json {
    json!({ "type": "object", "properties": properties, "additionalProperties": false })
}

/// `[table]` or `[[table]]`, by a definition of this name.
fn once_or_more(name: &str, table: Json, shared: &mut Map<String, Json>) -> Json {
    shared.insert(name.to_owned(), table);
    one_or_many(json!({ "$ref": format!("#/definitions/{name}") }))
}

/// `[table]` or `[[table]]`.
fn one_or_many(table: Json) -> Json {
    json!({ "anyOf": [table, { "type": "array", "items": table }] })
}
