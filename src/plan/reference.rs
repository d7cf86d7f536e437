//! The reference of all keys in docs/spec.md, rendered from their declarations. Text outside of the markers is written
//! by hand; the text under the heading of a component is the comment on the struct of its keys.

use super::{WorldRequest, print, resolve};
use crate::registry::Registry;
use crate::spec::{Declaration, DeclaredKey, JobTree};

const HEADER: &str =
    "| key | type | default | range or choices | meaning | changes results |\n|---|---|---|---|---|---|\n";
const END: &str = "<!-- end of generated keys -->\n";

/// `document` with every reference of a table rendered anew, between its markers.
///
/// # Errors
/// A table whose markers are missing.
pub fn update(document: &str, registry: &Registry) -> Result<String, String> {
    let tables = [""].into_iter().chain(print::TABLES);
    tables.into_iter().try_fold(document.to_owned(), |document, table| {
        let of = if table.is_empty() { "the top level".to_owned() } else { format!("`[{table}]`") };
        let begin = format!("<!-- generated: keys of {of} -->\n");
        let missing = |marker: &str| format!("the marker `{}` is missing", marker.trim_end());
        let (before, rest) = document.split_once(&begin).ok_or_else(|| missing(&begin))?;
        let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
        Ok([before, &begin, "\n", &table_text(table, registry), "\n", END, after].concat())
    })
}

/// What a `name` in this table selects, and all its names.
fn components<'r>(table: &str, registry: &'r Registry) -> Option<(&'static str, Vec<&'r str>)> {
    Some(match table {
        "model" => ("model", registry.model_kinds().map(|(name, _)| name).collect()),
        "dataset" => ("data set", registry.dataset_kinds().map(|(name, _)| name).collect()),
        "optimizer" => ("optimizer", registry.optimizer_kinds().map(|(name, _)| name).collect()),
        "scheduler" => ("schedule", registry.schedule_kinds().map(|(name, _)| name).collect()),
        _ => return None,
    })
}

/// The declarations of `table`, where it names the component `name`.
fn declarations(table: &str, name: Option<&str>, registry: &Registry) -> Vec<Declaration> {
    let text = name.map_or(String::new(), |name| format!("[{table}]\nname = \"{name}\"\n"));
    let tree = JobTree::parse("reference", &text, &[]).expect("the text is TOML");
    let all = tree.declarations(|root| drop(resolve::plan(root, registry, WorldRequest::of(1))));
    all.into_iter().filter(|declaration| declaration.table == table).collect()
}

/// The keys of some components of a table.
#[derive(Default, PartialEq)]
struct Section {
    /// Of keys that components share (`x-section`).
    title: Option<String>,
    names: Vec<String>,
    about: Vec<String>,
    keys: Vec<DeclaredKey>,
}

fn table_text(table: &str, registry: &Registry) -> String {
    let Some((noun, names)) = components(table, registry) else {
        let all = declarations(table, None, registry);
        let mut keys: Vec<DeclaredKey> = all.iter().flat_map(Declaration::keys).collect();
        if let Some(hook) = keys.iter_mut().find(|key| table == "distributed" && key.name == "comm_hook") {
            let names = registry.comm_hook_names().map(|name| format!(", `{name}`"));
            hook.range = "`none`".to_owned() + &names.collect::<String>();
        }
        return rows(&keys);
    };
    let each: Vec<(&str, Vec<Declaration>)> =
        names.into_iter().map(|name| (name, declarations(table, Some(name), registry))).collect();
    let declares = |all: &[Declaration], key: &DeclaredKey| {
        all.iter().any(|declaration| declaration.keys().contains(key))
    };
    let mut common =
        each.first().map_or(Vec::new(), |(_, all)| all.iter().flat_map(Declaration::keys).collect());
    common.retain(|key| each.iter().all(|(_, all)| declares(all, key)));
    let mut sections = Vec::new();
    for (name, all) in &each {
        add_sections(&mut sections, name, all, &common);
    }
    common.insert(0, name_key(noun));
    // Shared keys first.
    sections.sort_by_key(|section| section.title.is_none());
    rows(&common) + &sections.iter().map(Section::text).collect::<String>()
}

/// Adds the keys of component `name`, other than those of all components, to the sections of its table.
fn add_sections(sections: &mut Vec<Section>, name: &str, all: &[Declaration], common: &[DeclaredKey]) {
    let mut own = Section::default();
    for declaration in all {
        let (keys, about) = (declaration.keys(), declaration.description());
        let rest: Vec<DeclaredKey> = keys.iter().filter(|key| !common.contains(key)).cloned().collect();
        if rest.is_empty() && !keys.is_empty() {
            continue;
        }
        let Some(title) = declaration.section() else {
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

fn name_key(noun: &str) -> DeclaredKey {
    DeclaredKey {
        name: "name".to_owned(),
        kind: "string".to_owned(),
        required: true,
        default: None,
        range: "a name below, or [one of your own](extending.md)".to_owned(),
        description: format!("The {noun}."),
        changes_results: true,
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

fn rows(keys: &[DeclaredKey]) -> String {
    let row = |key: &DeclaredKey| {
        let default = match &key.default {
            _ if key.required => "required".to_owned(),
            Some(value) => format!("`{}`", print::one_line(value)),
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
