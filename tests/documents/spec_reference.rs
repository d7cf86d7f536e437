//! docs/spec.md has every component and key that the code knows, no others, and the code's defaults.

use super::markdown::{cells, heading, spans};
use super::read;
use ddp_run::Registry;
use ddp_run::testing::plan::{Plan, WorldRequest};
use ddp_run::testing::spec::{JobTree, Origin, Override};
use std::collections::{BTreeMap, BTreeSet};
use toml::Value;

/// A row of a table: what is said of a key.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    kind: String,
    /// Where it is one value.
    default: Option<Value>,
    choices: Vec<String>,
    changes_results: bool,
}

/// A section: its names (what stands between backticks in its heading), the names in its first lines, and its keys.
#[derive(Clone, Debug, Default)]
struct Section {
    table: String,
    title: String,
    names: Vec<String>,
    about: BTreeSet<String>,
    keys: Vec<Key>,
}

fn value(text: &str) -> Option<Value> {
    toml::from_str::<BTreeMap<String, Value>>(&format!("x = {text}")).ok()?.remove("x")
}

fn key(row: &[String]) -> Option<Key> {
    let [name, kind, default, choices, _meaning, changes] = row else { panic!("six cells: {row:?}") };
    let default = default.strip_prefix('`').and_then(|d| d.strip_suffix('`'));
    let default = default.map(|text| value(text).unwrap_or_else(|| panic!("{name}: {text} is no TOML")));
    Some(Key {
        name: name.strip_prefix('`')?.strip_suffix('`')?.to_owned(),
        kind: kind.clone(),
        default,
        choices: spans(choices).map(str::to_owned).collect(),
        changes_results: changes == "yes",
    })
}

fn sections() -> Vec<Section> {
    let (mut sections, mut table): (Vec<Section>, _) = (Vec::new(), String::new());
    let text = read("docs/spec.md");
    for line in text.lines().take_while(|line| *line != "## Command line") {
        match (heading(line), sections.last_mut()) {
            (Some((level, title)), _) => {
                let names: Vec<String> = spans(title).map(str::to_owned).collect();
                if level == 2 {
                    table = names.first().map_or("", |n| n.trim_matches(['[', ']'])).to_owned();
                }
                let names = if level == 2 { Vec::new() } else { names };
                sections.push(Section {
                    table: table.clone(),
                    title: title.to_owned(),
                    names,
                    ..Section::default()
                });
            }
            (None, Some(section)) => match cells(line) {
                Some(row) => section.keys.extend(key(&row)),
                None => section.about.extend(spans(line).map(str::to_owned)),
            },
            (None, None) => {}
        }
    }
    sections
}

/// The keys of `table` where its component is `name` (of tables without one: `None`).
fn documented(sections: &[Section], table: &str, name: Option<&str>) -> Vec<Key> {
    let name = name.unwrap_or_default();
    let belongs = |section: &&Section| match section.title.as_str() {
        _ if section.table != table => false,
        "Splits" | "Images" => section.about.contains(name),
        "Warm-up" => !section.about.contains(name),
        _ => section.names.is_empty() || section.names.iter().any(|n| n == name),
    };
    sections.iter().filter(belongs).flat_map(|section| section.keys.clone()).collect()
}

/// A spec whose `table` has this component, and all that it needs for its keys to be known.
fn spec(table: &str, name: Option<&str>) -> String {
    let of = |t: &str, usual: &'static str| {
        if t == table { name.unwrap_or(usual).to_owned() } else { usual.to_owned() }
    };
    let model = of("model", "linear");
    let data = if model == "gpt" { "text" } else { "shapes" };
    let dataset = of("dataset", data);
    let more = match dataset.as_str() {
        "csv" => "path = 'a.csv'\ntarget = 'y'",
        "text" => "path = 'a.txt'",
        "image-folder" => "root = 'a'\naugment = ['crop', 'cutout']",
        "random" => "",
        _ => "augment = ['crop', 'cutout']",
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
    let model = match (table, dataset.as_str()) {
        ("dataset", "text") => "gpt",
        ("dataset", _) => "linear",
        _ => &model,
    };
    format!(
        "name = 'x'\nbatch_size = 4\n[model]\nname = '{model}'\npretrained = 'w.pt'\n[dataset]\nname = '{dataset}'\n{more}\n\
         [optimizer]\nname = '{optimizer}'\n[scheduler]\nname = '{scheduler}'\n{length}\n"
    )
}

fn resolve(spec: &str, edits: &[Override]) -> Result<Plan, String> {
    JobTree::parse("job.toml", spec, edits)
        .and_then(|tree| Plan::resolve(&tree, &Registry::standard(), WorldRequest::of(1)))
        .map_err(|problems| problems.to_string())
}

fn set(table: &str, key: &str, value: &str) -> Override {
    let dot = if table.is_empty() { "" } else { "." };
    Override::Set(format!("{table}{dot}{key}={value}"))
}

/// The keys that the code knows, as it says of one that it does not.
fn known(table: &str, spec: &str) -> BTreeSet<String> {
    let problems = resolve(spec, &[set(table, "zzzzzzzz", "0")]).expect_err("an unknown key");
    let line =
        problems.lines().find(|line| line.contains("known here")).unwrap_or_else(|| panic!("{problems}"));
    let (_, list) = line.split_once("known here").unwrap_or_default();
    let list = spans(list).map(str::to_owned).collect::<BTreeSet<_>>();
    // One key alone is named before the words.
    if list.is_empty() { spans(line).map(str::to_owned).collect() } else { list }
}

/// The values that the code expects of a key, where it expects one of a few: as it says of another one.
fn choices(table: &str, key: &str, spec: &str) -> Option<BTreeSet<String>> {
    let problems = resolve(spec, &[set(table, key, "\"zzzzzzzz\"")]).err()?;
    let list = problems.split("expected \"").nth(1)?.split(", found").next()?;
    Some(format!("\"{list}").split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

/// Every table with every component that it may have.
fn components() -> Vec<(&'static str, Option<String>)> {
    let alone = ["", "train", "checkpoint", "metrics", "launch", "distributed"].map(|table| (table, None));
    let named = ["model", "dataset", "optimizer", "scheduler"].into_iter().flat_map(|table| {
        let names = choices(table, "name", &spec(table, None)).expect("the names of components");
        names.into_iter().map(move |name| (table, Some(name)))
    });
    alone.into_iter().chain(named).collect()
}

#[test]
fn it_has_the_components_and_keys_of_the_code() {
    let sections = sections();
    let tables = [
        "model",
        "dataset",
        "optimizer",
        "scheduler",
        "train",
        "checkpoint",
        "metrics",
        "launch",
        "distributed",
    ];
    let mut components = components();
    for (table, name) in &components {
        let mut expected = known(table, &spec(table, name.as_deref()));
        if table.is_empty() {
            expected.retain(|key| !tables.contains(&key.as_str()));
        }
        let keys = documented(&sections, table, name.as_deref());
        let names: BTreeSet<String> = keys.iter().map(|key| key.name.clone()).collect();
        assert_eq!(names, expected, "[{table}] {name:?}: docs/spec.md (left), the code (right)");
        assert_eq!(names.len(), keys.len(), "[{table}] {name:?}: a key stands twice: {keys:?}");
    }
    components.retain(|(_, name)| name.is_some());
    let in_sections =
        sections.iter().flat_map(|s| s.names.iter().map(|name| (s.table.clone(), name.clone())));
    let in_code = components.into_iter().flat_map(|(table, name)| Some((table.to_owned(), name?)));
    assert_eq!(
        in_sections.collect::<BTreeSet<_>>(),
        in_code.collect(),
        "docs/spec.md (left), the code (right)"
    );
}

fn equal(a: &Value, b: &Value) -> bool {
    let number = |v: &Value| v.as_float().or(v.as_integer().map(|i| i as f64));
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

#[test]
fn its_choices_are_those_of_the_code() {
    let (sections, mut compared) = (sections(), 0);
    for (table, name) in components() {
        let spec = spec(table, name.as_deref());
        let keys = documented(&sections, table, name.as_deref()).into_iter();
        for key in keys.filter(|key| key.kind == "string" && key.name != "name") {
            let Some(expected) = choices(table, &key.name, &spec) else { continue };
            let choices = key.choices.iter().cloned().collect();
            assert_eq!(expected, choices, "{table}.{}: the code (left), docs/spec.md (right)", key.name);
            compared += 1;
        }
    }
    assert!(compared > 25, "only {compared} keys were compared");
}

#[test]
fn its_defaults_are_those_of_the_code() {
    let (sections, mut compared) = (sections(), 0);
    for (table, name) in components() {
        let plan =
            resolve(&spec(table, name.as_deref()), &[]).unwrap_or_else(|p| panic!("{table} {name:?}: {p}"));
        for key in documented(&sections, table, name.as_deref()) {
            let Some(default) = key.default else { continue };
            let path =
                [table, &key.name].join(".").trim_start_matches('.').replace("scheduler.", "scheduler.0.");
            let resolved = plan.values.iter().find(|v| v.key == path || v.key == path.replace(".0.", "."));
            let resolved = resolved.unwrap_or_else(|| panic!("{path} has no value: {:?}", plan.values));
            // What `spec` needs is not the default.
            if resolved.origin != Origin::Default {
                continue;
            }
            assert!(
                equal(&default, &resolved.value),
                "{path}: {default} in docs/spec.md, {}",
                resolved.value
            );
            compared += 1;
        }
    }
    assert!(compared > 150, "only {compared} defaults were compared");
}

/// Another value that the key may have.
fn another(key: &Key) -> Option<String> {
    match key.default.as_ref()? {
        Value::Boolean(b) => Some((!b).to_string()),
        Value::Integer(i) => Some((i + 1).to_string()),
        Value::Float(x) => Some(if *x == 0.0 { 0.5.to_string() } else { (x / 2.0).to_string() }),
        Value::String(s) => match key.choices.iter().find(|choice| *choice != s) {
            Some(choice) => Some(format!("{choice:?}")),
            None => Some(format!("{:?}", format!("{s}x"))),
        },
        _ => None,
    }
}

#[test]
fn what_it_says_of_results_is_so() {
    let (sections, mut compared) = (sections(), 0);
    for (table, name) in components() {
        let spec = spec(table, name.as_deref());
        let hash = resolve(&spec, &[]).map(|plan| plan.hash);
        for key in documented(&sections, table, name.as_deref()) {
            let Some(value) = another(&key) else { continue };
            // Not every value fits what the rest of the spec says.
            let Ok(changed) = resolve(&spec, &[set(table, &key.name, &value)]) else { continue };
            let says = if key.changes_results { "yes" } else { "no" };
            assert_eq!(
                Ok(&changed.hash) != hash.as_ref(),
                key.changes_results,
                "{table}.{} says {says}",
                key.name
            );
            compared += 1;
        }
    }
    assert!(compared > 120, "only {compared} keys were compared");
}
