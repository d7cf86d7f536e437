//! A resolved plan is a spec that resolves to the same plan: with every component of every table, and with every value of their keys
//! that the declarations imply. Workers, `sweep`, `repro` and `rehearse` read resolved specs, and `predict` those of checkpoints.

use super::{Component, Reference};
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use serde_json::Value as Json;
use spec::JobTree;
use spec::schema::{self, ONLY_WORDS, Range, ValueKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use toml::{Table, Value};

/// A table with the `name` of its component, if it has any.
#[derive(Clone, Copy)]
struct Place<'a> {
    path: &'a str,
    repeats: bool,
    name: Option<&'a str>,
}

/// A key of a table, and a value for it.
type Setting<'a> = (&'a str, Value);

struct Trial<'a> {
    registry: &'a Registry,
    /// `[table] key = value` of each listed value, and whether a spec with it was accepted.
    listed: BTreeMap<String, bool>,
}

impl Trial<'_> {
    fn plan(&self, text: &str) -> Result<Plan, String> {
        let tree = JobTree::parse("job.toml", text, &[]);
        Plan::resolve(&tree, self.registry, WorldRequest::new(1)).map_err(|e| e.to_string())
    }

    /// The keys of the spec's plan if it is accepted; the plan is then read again.
    fn accepts(&self, job: &Table) -> Option<BTreeSet<String>> {
        let text = toml::to_string(job).unwrap();
        let first = self.plan(&text).ok()?;
        let again = first.to_toml();
        let second =
            self.plan(&again).unwrap_or_else(|e| panic!("{text}\nas a resolved spec:\n{again}\n{e}"));
        assert_eq!(second.to_toml(), again, "{text}");
        assert_eq!(facts(&second), facts(&first), "{text}");
        Some(first.values.into_iter().map(|value| value.key).collect())
    }

    /// The component `of` at `place` of `job`, with a value for each key that it requires; `None` if it does not fit the job.
    fn completed(&self, job: &Table, place: Place<'_>, of: &[Declared<'_>]) -> Option<Table> {
        let mut specs = vec![with(job, place, &[])];
        for declared in of.iter().filter(|declared| declared.required) {
            let each = |spec: &Table| {
                let set = |value: &Value| with(spec, place, &[(declared.key, value.clone())]);
                declared.values.iter().map(set).collect::<Vec<_>>()
            };
            specs = specs.iter().flat_map(each).collect();
        }
        let further = of.iter().filter(|declared| !declared.required).flat_map(Declared::settings);
        let beside: Vec<Table> = further
            .flat_map(|setting| {
                specs.iter().map(move |spec| with(spec, place, std::slice::from_ref(&setting)))
            })
            .collect();
        specs.into_iter().chain(beside).find(|spec| self.accepts(spec).is_some())
    }

    /// Tries the values of every key, beside each listed value that brings other keys.
    fn vary(&mut self, job: &Table, place: Place<'_>, of: &[Declared<'_>]) {
        let mut bases = vec![job.clone()];
        let usual = self.accepts(job);
        let all: Vec<Setting<'_>> = of.iter().flat_map(Declared::settings).collect();
        for setting in of.iter().filter(|d| d.listed).flat_map(Declared::settings) {
            let known = self.listed.entry(label(place, &setting)).or_default();
            if *known {
                continue;
            }
            let alone = bases.iter().map(|base| with(base, place, std::slice::from_ref(&setting)));
            let others = all.iter().filter(|other| other.0 != setting.0);
            let beside = others.map(|other| with(job, place, &[other.clone(), setting.clone()]));
            let mut specs = alone.chain(beside);
            let found = specs.find_map(|spec| self.accepts(&spec).map(|keys| (spec, keys)));
            let Some((spec, keys)) = found else { continue };
            self.listed.insert(label(place, &setting), true);
            if Some(keys) != usual {
                bases.push(spec);
            }
        }
        for base in &bases {
            let of_checkpoint = self.plan(&toml::to_string(base).unwrap()).unwrap().usage_toml();
            let read = self.plan(&of_checkpoint);
            assert!(read.is_ok(), "as the spec of a checkpoint:\n{of_checkpoint}\n{}", read.unwrap_err());
        }
        for (base, declared) in bases.iter().flat_map(|base| of.iter().map(move |declared| (base, declared)))
        {
            let mut specs = declared.settings().map(|setting| with(base, place, &[setting]));
            specs.find(|spec| self.accepts(spec).is_some());
        }
    }
}

fn label(place: Place<'_>, (key, value): &Setting<'_>) -> String {
    let name = place.name.map(|name| format!(" ({name})")).unwrap_or_default();
    format!("[{}]{name} {key} = {value}", place.path)
}

/// What a plan says besides the origin of its values.
fn facts(plan: &Plan) -> Json {
    let mut json = plan.json();
    json["values"] = Json::Object(plan.flat());
    json
}

/// `job` with these settings at `place`, beside those that are there for the same component.
fn with(job: &Table, place: Place<'_>, settings: &[Setting<'_>]) -> Table {
    let mut job = job.clone();
    let mut table = &mut job;
    let (tables, last) = place.path.rsplit_once('.').map_or((None, place.path), |(t, last)| (Some(t), last));
    for key in tables.into_iter().flat_map(|tables| tables.split('.')) {
        table = table.entry(key).or_insert_with(|| Table::new().into()).as_table_mut().unwrap();
    }
    let inner = match (last, place.repeats) {
        ("", _) => table,
        (last, false) => table.entry(last).or_insert_with(|| Table::new().into()).as_table_mut().unwrap(),
        (last, true) => {
            let list = table.entry(last).or_insert_with(|| vec![Table::new()].into()).as_array_mut().unwrap();
            list[0].as_table_mut().unwrap()
        }
    };
    if let Some(name) = place.name.filter(|name| inner.get("name").and_then(Value::as_str) != Some(name)) {
        *inner = Table::from_iter([("name".to_owned(), name.into())]);
    }
    inner.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    job
}

/// A key with values that it may accept.
struct Declared<'a> {
    key: &'a str,
    required: bool,
    values: Vec<Value>,
    /// The values are all that there are.
    listed: bool,
}

impl<'a> Declared<'a> {
    fn settings(&self) -> impl Iterator<Item = Setting<'a>> + use<'_, 'a> {
        self.values.iter().map(|value| (self.key, value.clone()))
    }
}

fn declared<'a>(declarations: impl Iterator<Item = &'a spec::Declaration>) -> Vec<Declared<'a>> {
    let keys = declarations.flat_map(|d| {
        schema::properties(&d.schema).map(|(key, of_key)| {
            let (values, listed) = values(of_key);
            Declared { key, required: schema::is_required(&d.schema, key), values, listed }
        })
    });
    keys.collect()
}

/// Values that a key may accept, and whether they are all.
fn values(schema: &Json) -> (Vec<Value>, bool) {
    let inner = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
    let inner = inner.unwrap_or(schema);
    let mut words: Vec<Value> = schema::listed_words(inner).map(Value::from).collect();
    let one_word = |words: &mut Vec<Value>, more: &[&str]| {
        words.extend(more.iter().map(|word| Value::from(*word)));
        (std::mem::take(words), false)
    };
    match schema::kind(schema) {
        ValueKind::Boolean => (vec![true.into(), false.into()], true),
        ValueKind::Choice(names) => (names.into_iter().map(Value::from).collect(), true),
        ValueKind::Integer(range) => (integers(range), false),
        ValueKind::Number(range) => (numbers(range), false),
        ValueKind::String if schema.get(ONLY_WORDS).is_some() => (words, true),
        ValueKind::String => one_word(&mut words, &["a", "a.pt"]),
        ValueKind::List(items, count) => {
            let (each, listed) = values(items);
            (each.into_iter().map(|item| vec![item; count.unwrap_or(1)].into()).collect(), listed)
        }
        ValueKind::Map(of) => {
            let table = |value| Table::from_iter([("a".to_owned(), value)]).into();
            (values(of).0.into_iter().map(table).collect(), false)
        }
        ValueKind::Table(_) => (Vec::new(), false),
        ValueKind::Own => {
            words.extend([0.5.into(), 2.into(), true.into(), vec![Value::from(0.5), 1.0.into()].into()]);
            one_word(&mut words, &["2 steps", "2 s", "cpu", "*", "a", "a:1"])
        }
    }
}

fn integers((from, to): Range<i64>) -> Vec<Value> {
    let least = if let Bound::Included(least) = from { least } else { 1 };
    let most = if let Bound::Included(most) = to { most } else { i64::MAX };
    BTreeSet::from([least, most.min(least.max(1) + 1)]).into_iter().map(Value::from).collect()
}

fn numbers((from, to): Range<f64>) -> Vec<Value> {
    let bound = |bound| match bound {
        Bound::Included(x) | Bound::Excluded(x) => Some(x),
        Bound::Unbounded => None,
    };
    let middle = match (bound(from), bound(to)) {
        (Some(from), Some(to)) => (from + to) / 2.0,
        (from, to) => from.map_or_else(|| to.unwrap_or(1.0) / 2.0, |from| from + 0.5),
    };
    let least = if let Bound::Included(least) = from { Some(least.into()) } else { None };
    least.into_iter().chain([middle.into()]).collect()
}

/// A job with this data set and this model.
fn job(dataset: &str, model: &str) -> Table {
    toml::from_str(&format!(
        "name = 'a'\nbatch_size = 4\nmodel.name = '{model}'\ndataset.name = '{dataset}'\noptimizer.name = 'sgd'"
    ))
    .unwrap()
}

#[test]
fn a_resolved_plan_is_a_spec_with_the_same_plan() {
    let registry = Registry::standard();
    let reference = Reference::new(&registry);
    let mut trial = Trial { registry: &registry, listed: BTreeMap::new() };
    let [datasets, models] = ["dataset", "model"].map(|path| &reference.table(path).unwrap().components);
    // A job with each data set, and the first model that accepts it.
    let jobs: Vec<Table> = datasets
        .iter()
        .map(|data| {
            let place = Place { path: "dataset", repeats: false, name: Some(&data.name) };
            let keys = declared(data.declarations.iter());
            let with_model = |model: &Component| trial.completed(&job("", &model.name), place, &keys);
            let job = models.iter().find_map(with_model);
            job.unwrap_or_else(|| panic!("no spec with the data set `{}` was accepted", data.name))
        })
        .collect();
    // The keys of a table without components depend on the data's targets.
    let mut targets = BTreeSet::new();
    let mut is_new = |job: &&Table| {
        let plan = trial.plan(&toml::to_string(job).unwrap()).unwrap();
        targets.insert(plan.json()["data"]["target"].to_string())
    };
    let of_targets: Vec<Table> = jobs.iter().filter(&mut is_new).cloned().collect();
    for table in &reference.tables {
        let alone = Component { declarations: table.declarations.clone(), ..Component::default() };
        let named = !table.components.is_empty();
        let components = if named { &table.components[..] } else { std::slice::from_ref(&alone) };
        for component in components {
            let name = Some(component.name.as_str()).filter(|_| named);
            let place = Place { path: &table.path, repeats: table.repeats, name };
            let keys = declared(component.declarations.iter());
            let among = if named { &jobs } else { &of_targets };
            let fitting = among.iter().filter_map(|job| trial.completed(job, place, &keys));
            let fitting: Vec<Table> = fitting.take(if named { 1 } else { among.len() }).collect();
            assert!(
                !fitting.is_empty(),
                "no spec with `{}` in [{}] was accepted",
                component.name,
                table.path
            );
            fitting.iter().for_each(|job| trial.vary(job, place, &keys));
            if table.path == "dataset" {
                // Some keys of texts are for tokens that are not characters.
                let bytes = [("kind", "bytes".into())];
                let tokens = Place { path: "tokenizer", repeats: false, name: None };
                let with_tokens = |job| trial.completed(&with(job, tokens, &bytes), place, &keys);
                if let Some(job) = among.iter().find_map(with_tokens) {
                    trial.vary(&job, place, &keys);
                }
            }
        }
    }
    let never: Vec<&String> =
        trial.listed.iter().filter(|(_, accepted)| !**accepted).map(|(l, _)| l).collect();
    // A sink that requires a key is not given by its name alone, and this schedule counts evaluations.
    assert_eq!(never, ["[metrics] sinks = [\"exec\"]", "[scheduler] (reduce-on-plateau) unit = \"step\""]);
}
