//! The reference of all keys in docs/spec.md, rendered from their declarations. Text outside of the markers is written
//! by hand; the text under the heading of a component is the comment on the struct of its keys.

use ddp_run::testing::{Component, Key, Reference, description, keys, one_line, section};

const HEADER: &str =
    "| key | type | default | range or choices | meaning | changes results |\n|---|---|---|---|---|---|\n";
const END: &str = "<!-- end of generated keys -->\n";

/// `document` with the reference of each of `tables` rendered anew, between its markers.
pub fn update(document: &str, tables: &[&str], reference: &Reference) -> String {
    tables.iter().fold(document.to_owned(), |document, table| {
        let of = if table.is_empty() { "the top level".to_owned() } else { format!("`[{table}]`") };
        let begin = format!("<!-- generated: keys of {of} -->\n");
        let missing = |marker: &str| -> ! { panic!("the marker `{}` is missing", marker.trim_end()) };
        let (before, rest) = document.split_once(&begin).unwrap_or_else(|| missing(&begin));
        let (_, after) = rest.split_once(END).unwrap_or_else(|| missing(END));
        [before, &begin, "\n", &table_text(table, reference), "\n", END, after].concat()
    })
}

/// The keys of some components of a table.
#[derive(Default, PartialEq)]
struct Section {
    /// Of keys that components share (`x-section`).
    title: Option<String>,
    names: Vec<String>,
    about: Vec<String>,
    keys: Vec<Key>,
}

fn table_text(path: &str, reference: &Reference) -> String {
    let table = reference.table(path).unwrap_or_else(|| panic!("no table `{path}`"));
    let noun = match path {
        "dataset" => "data set",
        "scheduler" => "schedule",
        _ => path,
    };
    if table.components.is_empty() {
        return rows(&table.keys());
    }
    let mut common = table.shared_keys();
    let mut sections = Vec::new();
    for component in &table.components {
        add_sections(&mut sections, component, &common);
    }
    common.insert(0, name_key(noun));
    // Shared keys first.
    sections.sort_by_key(|section| section.title.is_none());
    rows(&common) + &sections.iter().map(Section::text).collect::<String>()
}

/// Adds the keys of a component, other than those of all components, to the sections of its table.
fn add_sections(sections: &mut Vec<Section>, component: &Component, common: &[Key]) {
    let (name, mut own) = (component.name.as_str(), Section::default());
    for declaration in &component.declarations {
        let (keys, about) = (keys(&declaration.schema), description(&declaration.schema));
        let rest: Vec<Key> = keys.iter().filter(|key| !common.contains(key)).cloned().collect();
        if rest.is_empty() && !keys.is_empty() {
            continue;
        }
        let Some(title) = section(&declaration.schema) else {
            own.keys.extend(rest);
            own.about.extend(Some(about).filter(|about| !about.is_empty()));
            continue;
        };
        let at = sections.iter().position(|s| s.title.as_deref() == Some(title)).unwrap_or_else(|| {
            sections.push(Section { title: Some(title.to_owned()), ..Section::default() });
            sections.len() - 1
        });
        let shared = &mut sections[at];
        let add = |list: &mut Vec<String>, text: String| {
            if !text.is_empty() && !list.contains(&text) {
                list.push(text);
            }
        };
        add(&mut shared.names, name.to_owned());
        add(&mut shared.about, about);
        for key in rest {
            if !shared.keys.contains(&key) {
                shared.keys.push(key);
            }
        }
    }
    match sections.iter_mut().find(|s| s.title.is_none() && (&s.about, &s.keys) == (&own.about, &own.keys)) {
        Some(same) => same.names.push(name.to_owned()),
        None => sections.push(Section { names: vec![name.to_owned()], ..own }),
    }
}

fn name_key(noun: &str) -> Key {
    Key {
        name: "name".to_owned(),
        kind: "string".to_owned(),
        required: true,
        default: None,
        range: "a name below, or [one of your own](extending.md)".to_owned(),
        description: format!("The {noun}."),
        changes_results: noun != "observer",
        choices: Vec::new(),
    }
}

impl Section {
    fn text(&self) -> String {
        let quoted: Vec<String> = self.names.iter().map(|name| format!("`{name}`")).collect();
        let names = quoted.join(", ");
        let mut text = match &self.title {
            Some(title) => format!("\n### {title}\n\nKeys of {names}.\n"),
            None => format!("\n### {names}\n"),
        };
        for about in &self.about {
            text += &format!("\n{about}\n");
        }
        if self.keys.is_empty() {
            text + "\nIt has no keys of its own.\n"
        } else {
            text + "\n" + &rows(&self.keys)
        }
    }
}

fn rows(keys: &[Key]) -> String {
    let row = |key: &Key| {
        let default = match &key.default {
            _ if key.required => "required".to_owned(),
            Some(value) => format!("`{}`", one_line(value)),
            None => String::new(),
        };
        let changes = if key.changes_results { "yes" } else { "no" };
        let name = format!("`{}`", key.name);
        let cells = [&name, &key.kind, &default, &key.range, &key.description, changes];
        let cells = cells.map(|cell| {
            if cell.is_empty() { "| ".to_owned() } else { format!("| {} ", cell.replace('|', "\\|")) }
        });
        cells.concat() + "|\n"
    };
    HEADER.to_owned() + &keys.iter().map(row).collect::<String>()
}
