//! Completions at a position.

use super::cursor::At;
use super::document::Document;
use super::lines::KeyPart;
use super::text::Columns;
use super::{files, hover};
use job::plan::one_line;
use job::reference::{Key, Reference, unlinked, without_indices};
use lsp_types::{
    CompletionItem, CompletionItemKind as Kind, CompletionTextEdit, Documentation, MarkupContent, MarkupKind,
    TextEdit,
};
use std::ops::Range;

/// Where something is typed.
struct CursorContext<'a> {
    document: &'a Document,
    /// The bytes that it replaces: a word in one line.
    range: Range<usize>,
    columns: Columns,
}

/// Tables, keys, names and choices at a byte offset.
pub fn items(
    document: &Document,
    reference: &Reference,
    offset: usize,
    columns: Columns,
) -> Vec<CompletionItem> {
    let place = |range: Range<usize>| CursorContext { document, range, columns };
    match document.at(offset) {
        At::Header { inner, parts, double, .. } => {
            let from = parts.first().map_or(inner.end, |part| part.range.start);
            let to = parts.last().map_or(inner.end, |part| part.range.end);
            headers(&place(from..to), reference, double)
        }
        At::Key { table, part, blank, valued } => {
            let place = place(part.range.clone());
            let mut items = keys(&place, reference, &table, &part, valued);
            if blank && !valued {
                items.extend(tables(&place, reference));
            }
            items
        }
        At::Value { key, token, listed } => {
            let text = &document.text.text[token.clone()];
            // A text over several lines is not a word.
            let range = if text.contains('\n') { offset..offset } else { token };
            values(&place(range), reference, &key, listed)
        }
        At::Nothing => Vec::new(),
    }
}

impl CursorContext<'_> {
    fn item(&self, label: &str, kind: Kind, new: String, detail: String, about: String) -> CompletionItem {
        let range = self.document.text.range(self.range.clone(), self.columns);
        let typed = &self.document.text.text[self.range.clone()];
        // Editors compare with the typed text, which may have a quote.
        let filter = if typed.starts_with(['"', '\'']) { new.clone() } else { label.to_owned() };
        let about = MarkupContent { kind: MarkupKind::Markdown, value: unlinked(&about) };
        CompletionItem {
            label: label.to_owned(),
            kind: Some(kind),
            detail: Some(detail).filter(|detail| !detail.is_empty()),
            documentation: Some(about).filter(|a| !a.value.is_empty()).map(Documentation::MarkupContent),
            filter_text: Some(filter),
            text_edit: Some(CompletionTextEdit::Edit(TextEdit::new(range, new))),
            ..CompletionItem::default()
        }
    }
}

/// The keys of a table that this text does not set.
fn keys(
    place: &CursorContext<'_>,
    reference: &Reference,
    table: &str,
    typed: &KeyPart,
    valued: bool,
) -> Vec<CompletionItem> {
    let document = place.document;
    let mut set = document.set_in(table);
    // The one that is being typed is not set.
    if let Some(at) = set.iter().position(|name| *name == typed.name) {
        set.remove(at);
    }
    let mut known = document.keys(reference, table);
    known.retain(|key| !set.contains(&key.name));
    // One that is usually written as tables, such as `optimizer.group`, comes last. The sort is stable.
    let plain = without_indices(table);
    known.sort_by_key(|key| reference.table(&format!("{plain}.{}", key.name)).is_some());
    let mut seen = Vec::new();
    let mut items = Vec::new();
    for key in known {
        if seen.contains(&key.name) {
            continue;
        }
        let mut path = table.to_owned();
        super::lines::join(&mut path, &key.name);
        let mut about = key.description.clone();
        hover::value(document, &path).iter().for_each(|value| about.push_str(&format!("\n\n{value}")));
        let new = if valued { key.name.clone() } else { format!("{} = ", key.name) };
        let mut item = place.item(&key.name, Kind::PROPERTY, new, key.facts(), about);
        // Required ones first; then in the order of the declarations.
        item.sort_text = Some(format!("{}{:03}", u8::from(!key.required), seen.len()));
        items.push(item);
        seen.push(key.name);
    }
    items
}

/// Headers of tables, where a line is empty: those that the text may have besides its own.
fn tables(place: &CursorContext<'_>, reference: &Reference) -> Vec<CompletionItem> {
    let item = |table: &job::reference::Table, double: bool| {
        let heading = if double { format!("[[{}]]", table.path) } else { format!("[{}]", table.path) };
        let mut item =
            place.item(&heading, Kind::MODULE, heading.clone(), String::new(), table.names().join(", "));
        item.filter_text = Some(table.path.clone());
        item.sort_text = Some(format!("2{}{}", table.path, u8::from(double)));
        item
    };
    let both = reference.tables.iter().flat_map(|table| [(table, false), (table, true)]);
    both.filter(|(table, double)| may_be_added(place, table, *double))
        .map(|(table, double)| item(table, double))
        .collect()
}

/// Whether the text stays valid with another header of this table: it may have one `[table]`, or several `[[table]]`.
fn may_be_added(place: &CursorContext<'_>, table: &job::reference::Table, double: bool) -> bool {
    let path = table.path.as_str();
    let others = place.document.headings(path, &place.range);
    let is_key = || others.is_empty() && place.document.set_in("").iter().any(|set| set == path);
    !path.is_empty()
        && match double {
            true => table.repeats && others.iter().all(|double| *double) && !is_key(),
            false => others.is_empty() && !is_key(),
        }
}

/// Paths of tables, between brackets.
fn headers(place: &CursorContext<'_>, reference: &Reference, double: bool) -> Vec<CompletionItem> {
    let item = |table: &job::reference::Table| {
        let path = &table.path;
        place.item(path, Kind::MODULE, path.clone(), table.heading(), table.names().join(", "))
    };
    reference.tables.iter().filter(|table| may_be_added(place, table, double)).map(item).collect()
}

/// The values of a key: names of components, choices, `true` and `false`, and specs for `extends`.
fn values(place: &CursorContext<'_>, reference: &Reference, key: &str, listed: bool) -> Vec<CompletionItem> {
    if key == "extends" {
        return specs(place);
    }
    let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
    let known = place.document.keys(reference, table).into_iter().find(|known| known.name == name);
    let Some(Key { choices, kind, .. }) = known else { return Vec::new() };
    let components = reference.table(&without_indices(table)).filter(|_| name == "name");
    let is_list = kind.starts_with("list");
    choices
        .into_iter()
        .map(|choice| {
            let label = choice.value.as_str().map_or_else(|| choice.value.to_string(), str::to_owned);
            let written = one_line(&choice.value);
            let new = if is_list && !listed { format!("[{written}]") } else { written };
            let about = components
                .and_then(|table| Some(hover::component(&table.heading(), table.component(&label)?)));
            place.item(&label, Kind::VALUE, new, String::new(), about.unwrap_or(choice.about))
        })
        .collect()
}

/// The specs beside this one.
fn specs(place: &CursorContext<'_>) -> Vec<CompletionItem> {
    let own = place.document.path.as_deref();
    let folder = own.and_then(std::path::Path::parent).and_then(|folder| folder.read_dir().ok());
    let paths = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    let fits = |path: &std::path::PathBuf| {
        path.extension().is_some_and(|e| e == "toml")
            && path.is_file()
            && files::may_be_spec(path)
            && Some(path.as_path()) != own
    };
    let names = paths.filter(fits).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.collect();
    names.sort();
    let item = |name: String| {
        let new = toml::Value::from(name.as_str()).to_string();
        place.item(&name, Kind::FILE, new, String::new(), String::new())
    };
    names.into_iter().map(item).collect()
}
