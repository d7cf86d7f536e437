//! `ddp-run runs diff` and `ddp-run runs compare`.

use super::facts::{devices, toml_as_json};
use super::folder::RunFolder;
use super::list::{comparable, epochs, started, state};
use super::show::versions;
use base::display::{self, Column, Table};
use base::numbers::{metric_words, rate, seconds};
use job::plan::changes::between;
use job::plan::show_bytes;
use serde_json::{Map, Value as Json, json};
use spec::Values;
use std::collections::BTreeSet;

/// A key and its value in each run; empty where a run has none.
type Row = (String, Vec<String>);

/// What differs between two runs, in three sections.
pub fn diff(a: &RunFolder, b: &RunFolder, width: Option<usize>) -> String {
    let runs = [a, b];
    let sections = [("spec", spec(&runs)), ("provenance", provenance(&runs)), ("metrics", results(&runs))];
    let mut out = String::new();
    for (title, rows) in sections {
        let rows = differing(rows);
        if !rows.is_empty() {
            let gap = if out.is_empty() { "" } else { "\n" };
            out.push_str(&format!("{gap}{}", table(title, &runs, rows, width)));
        }
    }
    match out.is_empty() {
        true => format!("{} and {} do not differ\n", a.label(), b.label()),
        false => out + &apart(&runs),
    }
}

/// One column a run: how it went, and the keys of the spec that are not the same in all of them.
pub fn compare(runs: &[RunFolder], width: Option<usize>) -> String {
    let runs: Vec<&RunFolder> = runs.iter().collect();
    let mut rows = vec![row("state", &runs, state), row("started", &runs, |run| started(&run.started))];
    rows.extend(results(&runs));
    let mut out = table("", &runs, rows, width);
    let keys = differing(spec(&runs));
    if !keys.is_empty() {
        out.push_str(&format!("\n{}", table("spec", &runs, keys, width)));
    }
    out + &apart(&runs)
}

/// Lines about runs whose values do not compare.
fn apart(runs: &[&RunFolder]) -> String {
    let why: String = comparable(runs).why().iter().map(|why| format!("note: {why}\n")).collect();
    if why.is_empty() { why } else { format!("\n{why}") }
}

/// `{ "a": …, "b": …, "spec": [{ "key", "a", "b" }], "provenance": …, "metrics": …, "not_comparable": [sentences] }`
pub fn diff_json(a: &RunFolder, b: &RunFolder) -> Json {
    let empty = Values::new();
    let [before, now] = [a, b].map(|run| run.spec.as_ref().unwrap_or(&empty));
    let value = |of: Option<&str>| of.map_or(Json::Null, toml_as_json);
    let change =
        |c: &job::plan::changes::Change<'_>| json!({ "key": c.key, "a": value(c.before), "b": value(c.now) });
    let spec: Vec<Json> = between(before, now).iter().map(change).collect();
    let [first, second] = [a, b].map(RunFolder::json);
    let keys = ["commit", "dirty", "host", "devices", "world", "backend", "launcher", "hash"];
    let of = |key: &str| json!({ "key": key, "a": first[key], "b": second[key] });
    let provenance: Vec<Json> =
        keys.iter().filter(|key| first[**key] != second[**key]).map(|key| of(key)).collect();
    let names = names(&[a, b]);
    let metric = |name: &String| json!({ "key": name, "a": a.course.last(name), "b": b.course.last(name) });
    // NaN in both is no difference.
    let last = |run: &RunFolder, name: &str| run.course.last(name).map(|x| (!x.is_nan()).then_some(x));
    let measured: Vec<Json> = names.iter().filter(|n| last(a, n) != last(b, n)).map(metric).collect();
    let (before_run, now_run) = (a, b);
    let [a, b] = [a, b].map(|run| run.folder.display().to_string());
    let apart = comparable(&[before_run, now_run]).why().to_vec();
    json!({ "a": a, "b": b, "spec": spec, "provenance": provenance, "metrics": measured, "not_comparable": apart })
}

/// `{ "runs": […], "spec": { KEY: [value of each run] }, "not_comparable": [sentences] }` with the keys that are not the same in all runs.
pub fn compare_json(runs: &[RunFolder]) -> Json {
    let all: Vec<&RunFolder> = runs.iter().collect();
    let value = |run: &RunFolder, key: &str| {
        run.spec.as_ref().and_then(|spec| spec.get(key)).map_or(Json::Null, |value| toml_as_json(value))
    };
    let keys = differing(spec(&all)).into_iter().map(|(key, _)| {
        let values: Vec<Json> = runs.iter().map(|run| value(run, &key)).collect();
        (key, Json::from(values))
    });
    let spec = keys.collect::<Map<_, _>>();
    json!({ "runs": super::list_json(runs), "spec": spec, "not_comparable": comparable(&all).why() })
}

fn row(name: &str, runs: &[&RunFolder], of: impl Fn(&RunFolder) -> String) -> Row {
    (name.to_owned(), runs.iter().map(|run| of(run)).collect())
}

fn differing(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|(_, values)| values.windows(2).any(|pair| pair[0] != pair[1]));
    rows
}

/// Runs that do not fit beside each other get a second table below.
fn table(title: &str, runs: &[&RunFolder], rows: Vec<Row>, width: Option<usize>) -> String {
    let all = columns(title, runs, &rows);
    if runs.len() < 2 || width.is_none_or(|width| all.least() <= width) {
        return all.text(width);
    }
    let (first, second) = runs.split_at(runs.len().div_ceil(2));
    let split = |(key, mut values): Row| {
        let rest = values.split_off(first.len());
        ((key.clone(), values), (key, rest))
    };
    let (before, behind) = rows.into_iter().map(split).unzip();
    format!("{}\n{}", table(title, first, before, width), table(title, second, behind, width))
}

fn columns(title: &str, runs: &[&RunFolder], rows: &[Row]) -> Table {
    let mut columns = vec![Column::left(title, 0)];
    columns.extend(runs.iter().map(|run| Column::left(&run.label(), 0)));
    let dashed = |value: &String| if value.is_empty() { "-".to_owned() } else { display::name(value) };
    let rows = rows
        .iter()
        .map(|(key, values)| std::iter::once(display::name(key)).chain(values.iter().map(dashed)).collect());
    Table { columns, rows: rows.collect() }
}

/// All keys of the specs.
fn spec(runs: &[&RunFolder]) -> Vec<Row> {
    let keys: BTreeSet<&String> =
        runs.iter().filter_map(|run| run.spec.as_ref()).flat_map(|spec| spec.keys()).collect();
    let value = |run: &RunFolder, key: &str| run.spec.as_ref().and_then(|spec| spec.get(key)).cloned();
    keys.into_iter().map(|key| row(key, runs, |run| value(run, key).unwrap_or_default())).collect()
}

fn provenance(runs: &[&RunFolder]) -> Vec<Row> {
    let start = |of: fn(&record::Provenance) -> String| {
        move |run: &RunFolder| run.latest().map_or_else(String::new, of)
    };
    vec![
        row("commit", runs, start(|s| s.git.as_ref().map_or_else(String::new, |git| git.commit.clone()))),
        row(
            "changed files",
            runs,
            start(|s| {
                let dirty = s.git.as_ref().and_then(|git| git.dirty);
                dirty.map_or("", |dirty| if dirty { "yes" } else { "no" }).to_owned()
            }),
        ),
        row("versions", runs, start(versions)),
        row("host", runs, start(|s| s.host.name.clone())),
        row("cpu", runs, start(|s| s.host.cpu.clone())),
        row("devices", runs, start(devices)),
        row("processes", runs, start(|s| s.world.to_string())),
        row("backend", runs, start(|s| s.backend.clone())),
        row("launcher", runs, start(|s| s.launcher.clone())),
    ]
}

/// The metrics of all runs, in the order of the first that has them.
fn names(runs: &[&RunFolder]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (name, _) in runs.iter().flat_map(|run| &run.course.measured) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// How the runs went.
fn results(runs: &[&RunFolder]) -> Vec<Row> {
    let some = |text: Option<String>| text.unwrap_or_default();
    let mut rows = vec![
        row("epochs", runs, epochs),
        row("steps", runs, |run| run.course.step.to_string()),
        row("time", runs, |run| some(run.course.seconds().map(seconds))),
        row("samples/s", runs, |run| some(run.course.samples_per_s().map(rate))),
        row("restarts", runs, |run| run.course.restart_count().to_string()),
        row("best", runs, |run| {
            let best = run.course.best.as_ref().zip(run.by.as_ref());
            some(best.map(|(best, by)| {
                let value = metric_words(&by.metric, best.value);
                format!("{} {value} (epoch {})", by.metric, best.epoch.epoch.saturating_add(1))
            }))
        }),
    ];
    rows.extend(names(runs).iter().map(|name| {
        row(name, runs, |run| some(run.course.last(name).map(|value| metric_words(name, value))))
    }));
    rows.push(row("size", runs, |run| show_bytes(run.bytes)));
    rows
}
