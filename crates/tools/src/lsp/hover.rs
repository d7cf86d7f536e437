//! Information about the key, table or name at a position.

use super::cursor::At;
use super::document::{Document, unquoted};
use super::lines::{KeyPart, join};
use super::text::Columns;
use job::plan::one_line;
use job::reference::{Component, Key, Reference, unlinked, without_indices};
use lsp_types::{Hover, HoverContents, MarkupContent, MarkupKind};
use spec::{Origin, ResolvedValue};
use std::fmt::Write;
use std::path::Path;

/// The description at a byte offset, with values and their origins.
pub fn hover(document: &Document, reference: &Reference, offset: usize, columns: Columns) -> Option<Hover> {
    let (text, range) = match document.at(offset) {
        At::Header { parts, part, .. } => {
            let range = parts.get(part)?.range.clone();
            (of_table(document, reference, &path_of_header(document, &parts, part))?, range)
        }
        At::Key { table, part, .. } if !part.name.is_empty() => {
            let mut path = table.clone();
            join(&mut path, &part.name);
            let text = of_key(document, reference, &table, &part.name);
            (text.or_else(|| of_table(document, reference, &path))?, part.range)
        }
        At::Value { key, token, .. } => {
            let (table, name) = key.rsplit_once('.').unwrap_or(("", &key));
            let component =
                of_component(reference, table, name, &unquoted(&document.text.text[token.clone()]));
            (component.or_else(|| of_key(document, reference, table, name))?, token)
        }
        _ => return None,
    };
    let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value: text });
    Some(Hover { contents, range: Some(document.text.range(range, columns)) })
}

/// With the indices that the header has; a part of it is without.
fn path_of_header(document: &Document, parts: &[KeyPart], part: usize) -> String {
    let whole = document.lines.iter().find_map(|line| match line {
        super::lines::SpecLine::Header(header) if header.parts == parts => Some(header.path.clone()),
        _ => None,
    });
    let names: Vec<&str> = parts.iter().take(part + 1).map(|part| part.name.as_str()).collect();
    whole.filter(|_| part + 1 == parts.len()).unwrap_or_else(|| names.join("."))
}

/// Type, range, default, description and value of a key.
fn of_key(document: &Document, reference: &Reference, table: &str, name: &str) -> Option<String> {
    let known = document.keys(reference, table).into_iter().find(|key| key.name == name);
    let of_another = || {
        let table = reference.table(&without_indices(table))?;
        table.with_key(name).into_iter().next().map(|(key, _)| key)
    };
    let key = known.or_else(of_another)?;
    let mut path = without_indices(table);
    join(&mut path, name);
    let mut text = described(&path, &key);
    let mut path = table.to_owned();
    join(&mut path, name);
    let value = match path == "extends" {
        true => document.base().map(|base| format!("`{}`", base.display())),
        false => value(document, &path),
    };
    if let Some(value) = value {
        // Writing to a string can't fail.
        let _ = write!(text, "\n\n{value}");
    }
    Some(text)
}

/// Heading and description of a key.
pub fn described(path: &str, key: &Key) -> String {
    format!("**{path}**: {}\n\n{}", key.facts(), unlinked(&key.description))
}

/// `0.01`, and who has set it.
pub fn value(document: &Document, path: &str) -> Option<String> {
    let find = |values: &'_ [ResolvedValue]| values.iter().find(|value| value.key == path).cloned();
    if let Some(now) = find(&document.checked.values) {
        return Some(format!("Value: `{}`, {}", one_line(&now.value), origin(document, &now)));
    }
    let earlier = find(&document.earlier)?;
    Some(format!("Value before the present problems: `{}`", one_line(&earlier.value)))
}

fn origin(document: &Document, value: &ResolvedValue) -> String {
    let file = match &value.origin {
        Origin::Default => return "the default".to_owned(),
        Origin::Spec => return "set in this file".to_owned(),
        Origin::Override(_) => return "set on the command line of the server".to_owned(),
        Origin::Variable(name) => return format!("set by the variable {name}"),
        Origin::Base(file) => file,
    };
    let folder = document.path.as_deref().and_then(Path::parent);
    let name = folder.and_then(|folder| Path::new(file).strip_prefix(folder).ok()).unwrap_or(Path::new(file));
    let line = document.checked.tree.as_ref().and_then(|tree| {
        let place = tree.place(&value.key)?;
        Some(format!(", line {}", tree.source(place.key).position(place.key.start).0))
    });
    format!("set in {}{}", name.display(), line.unwrap_or_default())
}

/// A table with its values.
fn of_table(document: &Document, reference: &Reference, path: &str) -> Option<String> {
    let plain = without_indices(path);
    let table = reference.table(&plain);
    let keys = document.keys(reference, path);
    if table.is_none() && keys.is_empty() {
        return None;
    }
    let heading = table.map_or_else(|| format!("[{plain}]"), |table| table.heading());
    let mut text = format!("**{heading}**");
    let component = document.name_in(path).and_then(|name| table?.component(&name));
    match (component, table) {
        (Some(component), _) => {
            let _ = write!(text, " name = \"{}\"", component.name);
            if !component.about.is_empty() {
                let _ = write!(text, "\n\n{}", unlinked(&component.about));
            }
        }
        (None, Some(table)) if !table.components.is_empty() => {
            let _ = write!(text, "\n\n`name` is one of {}", table.names().join(", "));
        }
        _ => {}
    }
    text.push('\n');
    for key in keys {
        let path = format!("{path}.{}", key.name);
        let value = document.checked.values.iter().find(|value| value.key == path);
        let _ = match value {
            Some(found) => {
                let value = one_line(&found.value);
                write!(text, "\n* `{} = {value}`: {}", key.name, origin(document, found))
            }
            None => write!(text, "\n* `{}`: {}", key.name, key.facts()),
        };
    }
    Some(text)
}

/// The component that the value of a `name` selects.
fn of_component(reference: &Reference, table: &str, key: &str, name: &str) -> Option<String> {
    let table = reference.table(&without_indices(table)).filter(|_| key == "name")?;
    Some(component(&table.heading(), table.component(name)?))
}

/// A component with its keys.
pub fn component(heading: &str, component: &Component) -> String {
    let mut text = format!("**{heading}** name = \"{}\"\n", component.name);
    if !component.about.is_empty() {
        let _ = write!(text, "\n{}\n", unlinked(&component.about));
    }
    for key in component.keys() {
        let _ = write!(text, "\n* `{}`: {}", key.name, key.facts());
    }
    text
}
