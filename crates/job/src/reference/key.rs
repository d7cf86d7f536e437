//! The declaration of a key, as text.

use serde::Serialize;
use serde_json::Value as Json;
use spec::range::words;
use spec::schema::{self, ValueKind};
use std::ops::Bound;

/// One key.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Key {
    /// Last part of the dotted path: `lr` for `optimizer.lr`.
    pub name: String,
    /// `integer`, `list of 2 floats`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether a spec must set it.
    pub required: bool,
    /// `None` if it depends on other keys.
    pub default: Option<toml::Value>,
    /// The accepted range or choices; empty if its type accepts every value.
    pub range: String,
    /// Description from the declaration, followed by those of its choices.
    pub description: String,
    /// Whether results may depend on the value.
    pub changes_results: bool,
    /// Values that it accepts, or its items if it is a list; there may be others.
    #[serde(skip)]
    pub choices: Vec<Choice>,
}

/// A value that a key accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// As TOML; a string for a named choice.
    pub value: toml::Value,
    /// Description; empty if the declaration has none.
    pub about: String,
}

/// The section of the reference for keys that several components share (`x-section`).
pub fn section(schema: &Json) -> Option<&str> {
    schema.get("x-section")?.as_str()
}

/// The keys, in order of declaration.
pub fn keys(declared: &Json) -> Vec<Key> {
    schema::properties(declared).map(|(name, key)| self::declared(declared, name, key)).collect()
}

fn declared(table: &Json, name: &str, key: &Json) -> Key {
    let required = schema::is_required(table, name);
    let choices = variants(key).into_iter().filter_map(|variant| {
        let about = Some(description(variant)).filter(|about| !about.is_empty())?;
        Some(format!(" `{}`: {}", variant["const"].as_str()?, lower_first(&about)))
    });
    Key {
        name: name.to_owned(),
        kind: type_words(key),
        required,
        default: schema::default(key).filter(|_| !required),
        range: range_words(key),
        description: description(key) + &choices.collect::<String>(),
        changes_results: schema::changes_results(table) && schema::changes_results(key),
        choices: self::choices(key),
    }
}

fn choices(schema: &Json) -> Vec<Choice> {
    let named = |value: &str, about: String| Choice { value: value.into(), about };
    let described: Vec<Choice> = variants(schema)
        .into_iter()
        .filter_map(|variant| Some(named(variant["const"].as_str()?, description(variant))))
        .collect();
    let truth = || [true, false].map(|value| Choice { value: value.into(), about: String::new() });
    let plain = |name: &str| named(name, String::new());
    match schema::kind(schema) {
        ValueKind::Boolean => truth().into(),
        ValueKind::List(items, _) => choices(items),
        ValueKind::Choice(names) if names.len() != described.len() => names.into_iter().map(plain).collect(),
        ValueKind::Own | ValueKind::String if described.is_empty() => {
            // An optional value is one of two schemas.
            let inner =
                schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
            let inner = inner.unwrap_or(schema);
            let is_truth =
                |types: &Json| types.as_array().is_some_and(|types| types.contains(&"boolean".into()));
            let truth = truth().into_iter().filter(|_| is_truth(&inner["type"]));
            truth.chain(schema::listed_words(inner).map(plain)).collect()
        }
        _ => described,
    }
}

/// The comment on the struct, or on the field.
pub fn description(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").trim().to_owned()
}

/// A description outside of docs/: there its links to other documents and sections lead nowhere.
pub fn unlinked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(middle) = rest.find("](") {
        let (before, after) = (&rest[..middle], &rest[middle + 2..]);
        let (Some(open), Some(end)) = (opening(before), after.find(')')) else {
            out.push_str(&rest[..middle + 2]);
            rest = after;
            continue;
        };
        let (words, target) = (&before[open + 1..], &after[..end]);
        out.push_str(&before[..open]);
        match target.contains("://") {
            true => out.push_str(&rest[open..middle + 2 + end + 1]),
            false => {
                out.push_str(if words.ends_with(".md") { "docs/" } else { "" });
                out.push_str(words);
            }
        }
        rest = &after[end + 1..];
    }
    out + rest
}

/// The bracket that opens the last link's words.
fn opening(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, letter) in text.char_indices().rev() {
        match letter {
            ']' => depth += 1,
            '[' if depth == 0 => return Some(at),
            '[' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// `All parameters.` as `all parameters.`; a leading name in capitals stays.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(chars).collect()
        }
        _ => text.to_owned(),
    }
}

/// The values of a choice with their descriptions.
pub(super) fn variants(schema: &Json) -> Vec<&Json> {
    let list = |key: &str| schema.get(key).and_then(Json::as_array).into_iter().flatten();
    if schema.get("const").is_some() {
        return vec![schema];
    }
    list("oneOf").chain(list("anyOf")).flat_map(variants).collect()
}

fn type_words(schema: &Json) -> String {
    // `path` and `duration`; numbers have formats such as `uint64`.
    if let Some(format) = schema["format"].as_str().filter(|format| ["path", "duration"].contains(format)) {
        return format.to_owned();
    }
    match schema::kind(schema) {
        ValueKind::Boolean => "bool".to_owned(),
        ValueKind::Integer(_) => "integer".to_owned(),
        ValueKind::Number(_) => "float".to_owned(),
        ValueKind::String | ValueKind::Choice(_) => "string".to_owned(),
        ValueKind::List(items, None) => format!("list of {}", plural(items)),
        ValueKind::List(items, Some(n)) => format!("list of {n} {}", plural(items)),
        ValueKind::Map(values) => format!("table of {}", plural(values)),
        ValueKind::Table(_) => "table".to_owned(),
        ValueKind::Own => {
            let types: Vec<&str> = match &schema["type"] {
                Json::String(one) => vec![one],
                many => many.as_array().into_iter().flatten().filter_map(Json::as_str).collect(),
            };
            let word = |name: &&str| {
                match *name {
                    "boolean" => "bool",
                    "number" => "float",
                    "array" => "list",
                    "object" => "table",
                    other => other,
                }
                .to_owned()
            };
            types.iter().filter(|name| **name != "null").map(word).collect::<Vec<_>>().join(" or ")
        }
    }
}

fn plural(schema: &Json) -> String {
    let words = type_words(schema);
    words.strip_prefix("list ").map_or_else(|| format!("{words}s"), |rest| format!("lists {rest}"))
}

fn range_words(schema: &Json) -> String {
    if schema["format"] == "duration" {
        return "above 0".to_owned();
    }
    if let Some(expected) = schema::expected(schema) {
        return expected.to_owned();
    }
    match schema::kind(schema) {
        ValueKind::Integer(range) => bounds(range, |n| match n.checked_ilog2() {
            Some(power) if power > 16 && n == 1 << power => format!("2^{power}"),
            _ => n.to_string(),
        }),
        ValueKind::Number(range) => {
            bounds(range, |x| if x != 0.0 && x < 1e-4 { format!("{x:e}") } else { x.to_string() })
        }
        ValueKind::Choice(names) => {
            names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        }
        ValueKind::List(items, _) => match range_words(items) {
            range if range.is_empty() => range,
            range => format!("each {range}"),
        },
        _ => String::new(),
    }
}

fn bounds<T: Copy>((low, high): (Bound<T>, Bound<T>), show: impl Fn(T) -> String) -> String {
    let range = (low.map(&show), high.map(&show));
    words::<String>(&range).trim_start_matches(" from").trim_start_matches(" of").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::unlinked;

    #[test]
    fn links_within_the_documents_become_text() {
        for (text, expected) in [
            (
                "Groups, each a [`[[optimizer.group]]`](#optimizergroup).",
                "Groups, each a `[[optimizer.group]]`.",
            ),
            ("of nodes ([clusters.md](clusters.md#several-nodes)).", "of nodes (docs/clusters.md)."),
            ("[a](b.md) and [c](https://d.org/e) [f]", "a and [c](https://d.org/e) [f]"),
            ("x](y) and a[0](1", "x](y) and a[0](1"),
        ] {
            assert_eq!(unlinked(text), expected);
        }
    }
}
