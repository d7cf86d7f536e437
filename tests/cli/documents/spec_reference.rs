//! docs/spec.md has what the declarations in src/ say of every key, and every key that the code knows is declared.

use super::markdown::{cells, heading, spans};
use super::reference;
use super::{read, root};
use ddp_run::Registry;
use ddp_run::testing::{JobTree, Override, Plan, Reference, WorldRequest, json_schema};
use std::collections::BTreeSet;

const DOCUMENT: &str = "docs/spec.md";
const SCHEMA: &str = "schema/ddp-run.schema.json";
/// The tables whose `name` selects a component, and those without one.
const NAMED: [&str; 6] = ["model", "dataset", "task", "optimizer", "scheduler", "observer"];
const OTHERS: [&str; 10] = [
    "tokenizer",
    "optimizer.group",
    "train",
    "ema",
    "early_stop",
    "checkpoint",
    "metrics",
    "launch",
    "distributed",
    "sweep",
];

/// The tables of components that only users' programs have.
const OWN: [&str; 3] = ["[loss]", "[[metric]]", "[[transform]]"];

#[test]
fn it_is_current() {
    let (declared, tables) = (Reference::new(&Registry::standard()), [&[""][..], &NAMED, &OTHERS].concat());
    check(DOCUMENT, |text| reference::update(text, &tables, &declared));
}

#[test]
fn the_schema_is_current() {
    let schema = json_schema(&Reference::new(&Registry::standard()));
    check(SCHEMA, |_| format!("{schema:#}\n"));
}

/// A file that is made of the declarations, by `update` of what it is now.
fn check(file: &str, update: impl Fn(&str) -> String) {
    let update_now = std::env::var_os("UPDATE_DOCS").is_some();
    let path = root().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| {
        assert!(update_now, "{file}: {e}");
        String::new()
    });
    let current = update(&text);
    if update_now {
        return std::fs::write(path, current).expect("the file is writable");
    }
    let differs = text.lines().zip(current.lines()).find(|(now, then)| now != then);
    assert!(
        text == current,
        "{file} differs from the declarations in src/ (left: the file, right: the declarations):\n\
         {differs:#?}\n`UPDATE_DOCS=1 cargo test --test cli is_current` writes it anew"
    );
}

/// The keys of a heading's tables.
#[derive(Clone, Debug, Default)]
struct Section {
    table: String,
    /// What is between backticks in the heading, or below it in the line of components that share the keys; empty if the
    /// keys are those of every component.
    components: Vec<String>,
    /// Key and meaning.
    keys: Vec<(String, String)>,
}

fn sections() -> Vec<Section> {
    let (mut sections, mut table): (Vec<Section>, _) = (Vec::new(), String::new());
    let text = read(DOCUMENT);
    for line in text.lines().take_while(|line| *line != "## Command line") {
        let names = |line| spans(line).map(str::to_owned).collect::<Vec<_>>();
        match (heading(line), sections.last_mut()) {
            (Some((2, title)), _) => {
                table = names(title).first().map_or("", |n| n.trim_matches(['[', ']'])).to_owned();
                sections.push(Section { table: table.clone(), ..Section::default() });
            }
            (Some((_, title)), _) => sections.push(Section {
                table: table.clone(),
                components: names(title),
                ..Section::default()
            }),
            (None, Some(section)) => match cells(line) {
                Some(row) if row[0].starts_with('`') => {
                    section.keys.push((row[0].trim_matches('`').to_owned(), row[4].clone()));
                }
                None if line.starts_with("Keys of `") => section.components = names(line),
                _ => {}
            },
            (None, None) => {}
        }
    }
    sections
}

#[test]
fn every_key_has_a_description() {
    let keys: Vec<(String, String)> = sections().into_iter().flat_map(|section| section.keys).collect();
    assert!(keys.len() > 150, "only {} keys were found", keys.len());
    let without: Vec<_> = keys.iter().filter(|(_, meaning)| meaning.is_empty()).collect();
    assert!(without.is_empty(), "without a comment on their fields: {without:?}");
}

/// The keys of `table` where its component is `name` (of tables without one: `None`).
fn documented(sections: &[Section], table: &str, name: Option<&str>) -> Vec<String> {
    let belongs = |section: &&Section| {
        let of_all = section.components.is_empty();
        section.table == table && (of_all || section.components.iter().any(|n| Some(n.as_str()) == name))
    };
    let keys = sections.iter().filter(belongs).flat_map(|section| &section.keys);
    keys.map(|(key, _)| key.clone()).collect()
}

/// A spec whose `table` has this component, and all that it needs for its keys to be known.
fn spec(table: &str, name: Option<&str>) -> String {
    let of = |t: &str, usual: &'static str| {
        if t == table { name.unwrap_or(usual).to_owned() } else { usual.to_owned() }
    };
    let model = of("model", "linear");
    let data = if matches!(model.as_str(), "gpt" | "gpt2" | "llama") { "text" } else { "shapes" };
    let dataset = of("dataset", data);
    let more = match dataset.as_str() {
        "csv" => "path = 'a.csv'\ntarget = 'y'",
        "text" => "path = 'a.txt'",
        "parquet" | "sqlite" => {
            "path = 'a'\naugment = ['random-resized-crop', 'color-jitter', 'crop', 'cutout']"
        }
        "image-folder" => "root = 'a'\naugment = ['random-resized-crop', 'color-jitter', 'crop', 'cutout']",
        "image-csv" => {
            "root = 'a'\nimage = 'id'\ntarget = 'y'\ntask = 'regression'\naugment = ['random-resized-crop', 'color-jitter', 'crop', 'cutout']"
        }
        "random" | "tinyshakespeare" | "california-housing" => "",
        _ => "augment = ['random-resized-crop', 'color-jitter', 'crop', 'cutout']",
    };
    let scheduler = of("scheduler", "constant");
    let length = match scheduler.as_str() {
        "step" => "step_size = 2",
        "multistep" => "milestones = [2]",
        "exponential" => "gamma = 0.9",
        "cosine-restarts" => "t_0 = 2",
        "warmup" => "steps = 2",
        "noam" => "d_model = 8",
        _ => "",
    };
    let optimizer = of("optimizer", "sgd");
    let observer = of("observer", "csv");
    let command = if observer == "exec" { "command = ['cat']" } else { "" };
    let task = of("task", "classification");
    let task = if table == "task" { format!("[task]\nname = '{task}'\n") } else { String::new() };
    let model = match (table, dataset.as_str()) {
        ("dataset", "text" | "tinyshakespeare") => "gpt",
        ("dataset", _) => "linear",
        _ => &model,
    };
    format!(
        "name = 'x'\nbatch_size = 4\n[model]\nname = '{model}'\npretrained = 'w.pt'\n[dataset]\nname = '{dataset}'\n{more}\n\
         [optimizer]\nname = '{optimizer}'\n[scheduler]\nname = '{scheduler}'\n{length}\n[observer]\nname = '{observer}'\n{command}\n{task}"
    )
}

fn resolve(spec: &str, edit: Override) -> String {
    let tree = JobTree::parse("job.toml", spec, &[edit]);
    let plan = Plan::resolve(&tree, &Registry::standard(), WorldRequest::new(1));
    plan.expect_err("a wrong edit").to_string()
}

fn set(table: &str, key: &str, value: &str) -> Override {
    let dot = if table.is_empty() { "" } else { "." };
    Override::Set(format!("{table}{dot}{key}={value}"))
}

/// The keys that the code knows, from its message about an unknown one.
fn known(table: &str, spec: &str) -> BTreeSet<String> {
    let problems = resolve(spec, set(table, "zzzzzzzz", "0"));
    let line =
        problems.lines().find(|line| line.contains("known here")).unwrap_or_else(|| panic!("{problems}"));
    let (_, list) = line.split_once("known here").unwrap_or_default();
    let list = spans(list).map(str::to_owned).collect::<BTreeSet<_>>();
    // One key alone is named before the words.
    if list.is_empty() { spans(line).map(str::to_owned).collect() } else { list }
}

/// The names that `key` of `table` may have, from the message about a wrong one.
fn names(table: &str, key: &str) -> Vec<String> {
    let problems = resolve(&spec(table, None), set(table, key, "\"zzzzzzzz\""));
    let list = problems.split_once("expected \"").and_then(|(_, list)| list.split_once(", found"));
    let names = list.unwrap_or_else(|| panic!("{problems}")).0.replace(['"', ','], " ").replace(" or ", " ");
    names.split_whitespace().map(str::to_owned).collect()
}

/// Every table with every component that it may have.
fn components() -> Vec<(&'static str, Option<String>)> {
    let alone = [""].into_iter().chain(OTHERS).map(|table| (table, None));
    let named =
        NAMED.into_iter().flat_map(|table| names(table, "name").into_iter().map(move |n| (table, Some(n))));
    alone.chain(named).collect()
}

#[test]
fn it_has_every_key_that_the_code_knows() {
    let (sections, components) = (sections(), components());
    let own = OWN.map(|table| table.trim_matches(['[', ']']));
    let tables: BTreeSet<String> = NAMED.into_iter().chain(OTHERS).chain(own).map(str::to_owned).collect();
    let text = read(DOCUMENT);
    assert!(OWN.iter().all(|table| text.contains(&format!("`{table}`"))), "{DOCUMENT} names {OWN:?}");
    assert!(components.len() > 45, "only {} components were found", components.len());
    for (table, name) in components {
        let usual = spec(table, name.as_deref());
        let mut expected = known(table, &usual);
        if matches!(name.as_deref(), Some("parquet" | "sqlite")) {
            let (before, behind) = usual.split_once("augment").expect("images are usual");
            let (_, behind) = behind.split_once('\n').expect("not the last line");
            for content in ["content = 'table'\ntarget = 'y'", "content = 'text'", "content = 'tokens'"] {
                expected.extend(known(table, &format!("{before}{content}\n{behind}")));
            }
        }
        if table.is_empty() {
            expected = &expected - &tables;
            // It has a section of its own.
            assert!(expected.remove("extends") && text.contains("`extends"));
        }
        if table == "optimizer.group" {
            expected = &expected - &known("optimizer", &spec("optimizer", None));
        }
        let keys = documented(&sections, table, name.as_deref());
        let names: BTreeSet<String> = keys.iter().cloned().collect();
        assert_eq!(names, expected, "[{table}] {name:?}: {DOCUMENT} (left), the code (right)");
        assert_eq!(names.len(), keys.len(), "[{table}] {name:?}: a key is listed twice: {keys:?}");
    }
}
