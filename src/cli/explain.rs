//! `ddp-run explain`: what a key, a table or a component of specs means.

use base::display::wrapped;
use base::error::{Error, Result};
use job::reference::{Component, EXTENDS, Key, Reference, Table, unlinked, without_indices};
use job::registry::Registry;
use spec::did_you_mean;
use std::fmt::Write;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A key (`optimizer.betas`, `optimizer.adamw.betas`), a table (`optimizer`) or a component (`optimizer.adamw`), or the last word
    /// of one (`betas`, `adamw`); without it, all tables
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
}

/// Prints the explanation to standard output.
///
/// # Errors
/// Exit 2: there is no such key, table or component.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let reference = Reference::new(registry);
    let text = match &args.key {
        None => tables(&reference),
        Some(path) => explained(&reference, path.trim_matches(['[', ']']))?,
    };
    super::print(&format!("{}\n", text.trim_end()))
}

fn tables(reference: &Reference) -> String {
    let rows: Vec<(String, String)> =
        reference.tables.iter().map(|table| (table.heading(), table.names().join(", "))).collect();
    let width = rows.iter().map(|(heading, _)| heading.len()).max().unwrap_or(0);
    let mut out = String::new();
    for (heading, names) in rows {
        let _ = writeln!(out, "{heading:width$}  {}", prose(&names, width + 2));
    }
    out + "\n`ddp-run explain TABLE`, `TABLE.KEY` or `TABLE.COMPONENT` explains more.\n"
}

fn explained(reference: &Reference, path: &str) -> Result<String> {
    // `plan` and `check` write indices, as in `scheduler.0.name`.
    let path = &without_indices(path);
    if let Some(table) = reference.table(path).filter(|_| !path.is_empty()) {
        return Ok(of_table(table));
    }
    if reference.absent.contains(&path.split('.').next().unwrap_or(path)) {
        return Ok(of_absent(path));
    }
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let hook = reference.hooks.iter().find(|hook| hook.name == name && !hook.declarations.is_empty());
    if let Some(hook) = hook.filter(|_| table == "distributed.hook") {
        return Ok(of_hook(hook));
    }
    if let Some((outer, component)) = table.rsplit_once('.')
        && let Some(component) = reference.table(outer).and_then(|table| table.component(component))
    {
        return of_components_key(outer, component, name);
    }
    let Some(table) = reference.table(table) else {
        let error = unknown(format!("no table `{table}`"), table, tables_of(reference));
        return Err(error.hint("`ddp-run explain` lists the tables"));
    };
    if let Some(component) = table.component(name) {
        return Ok(of_component(table, component));
    }
    if name == "name" && !table.components.is_empty() {
        return Ok(of_table(table));
    }
    if path == EXTENDS.0 {
        return Ok(format!("{path}  path\n  {}", prose(EXTENDS.1, 2)));
    }
    let mut found = table.with_key(name);
    if let Some(optimizers) =
        reference.table("optimizer").filter(|_| found.is_empty() && table.path == "optimizer.group")
    {
        for (key, components) in optimizers.with_key(name) {
            let Some(key) = key.of_group() else { continue };
            // Keys that differ in their defaults are one key here.
            match found.iter_mut().find(|(known, _)| *known == key) {
                Some((_, all)) => all.extend(components),
                None => found.push((key, components)),
            }
        }
    }
    if !found.is_empty() {
        return Ok(found.iter().map(|(key, components)| of_key(path, key, components)).collect());
    }
    let anywhere = if table.path.is_empty() { anywhere(reference, name) } else { String::new() };
    if !anywhere.is_empty() {
        return Ok(anywhere);
    }
    let known = table.known();
    let known = known.iter().map(String::as_str);
    Err(match table.path.as_str() {
        "" => {
            let components = reference.tables.iter().flat_map(|table| &table.components);
            let components = components.map(|component| component.name.as_str());
            let known = known.chain(tables_of(reference)).chain(components).collect();
            unknown(format!("no key, table or component `{name}`"), name, known)
                .hint("`ddp-run explain` lists the tables and the keys of the top level")
        }
        table_path => unknown(format!("no key `{name}` in {}", table.heading()), name, known.collect())
            .hint(format!("`ddp-run explain {table_path}` lists what is there")),
    })
}

/// The components and keys of this name in all tables; empty if there are none.
fn anywhere(reference: &Reference, name: &str) -> String {
    let of = |table: &Table| match table.component(name) {
        Some(component) => of_component(table, component),
        None => {
            let path = format!("{}.{name}", table.path);
            table.with_key(name).iter().map(|(key, components)| of_key(&path, key, components)).collect()
        }
    };
    let hooks = reference.hooks.iter().filter(|hook| hook.name == name).map(of_hook);
    reference.tables.iter().map(of).chain(hooks).collect()
}

/// An error about a word that is none of those that are `known`.
fn unknown(what: String, typed: &str, known: Vec<&str>) -> Error {
    Error::usage(what + &did_you_mean(typed, known))
}

fn tables_of(reference: &Reference) -> Vec<&str> {
    reference.tables.iter().map(|table| table.path.as_str()).filter(|path| !path.is_empty()).collect()
}

/// What only a user's program has.
fn of_absent(path: &str) -> String {
    let (table, _) = path.split_once('.').unwrap_or((path, ""));
    let (heading, about) = match table {
        "task" => ("[task]", "What happens between a batch and its loss, in place of the standard task."),
        "loss" => ("[loss]", "A loss in place of those of `train.loss`."),
        "metric" => ("[[metric]]", "A metric beside the standard ones."),
        "transform" => ("[[transform]]", "What is done to each sample of the data set."),
        "observer" => ("[[observer]]", "What sees the events of a run."),
        other => (other, "A component."),
    };
    let about =
        format!("{about} This program has none; a user's program can define some (docs/extending.md).");
    format!("{heading}\n  {}\n", prose(&about, 2))
}

/// `optimizer.adamw.lr`.
fn of_components_key(table: &str, component: &Component, name: &str) -> Result<String> {
    let keys = component.keys();
    match keys.iter().find(|key| key.name == name) {
        Some(key) => Ok(of_key(&format!("{table}.{name}"), key, std::slice::from_ref(&component.name))),
        None => {
            let what = format!("no key `{name}` of {table}.{}", component.name);
            let known = keys.iter().map(|key| key.name.as_str()).collect();
            let hint = format!("`ddp-run explain {table}.{}` lists its keys", component.name);
            Err(unknown(what, name, known).hint(hint))
        }
    }
}

fn of_component(table: &Table, component: &Component) -> String {
    let about = paragraph(&component.about);
    format!("{} name = \"{}\"\n{about}{}", table.heading(), component.name, keys(&component.keys()))
}

fn of_hook(hook: &Component) -> String {
    let (about, keys) = (paragraph(&hook.about), keys(&hook.keys()));
    let table = if keys.is_empty() { "[distributed]" } else { "[distributed.hook] with" };
    format!("{table} comm_hook = \"{}\"\n{about}{keys}", hook.name)
}

/// A paragraph with the components that have the key so.
fn of_key(path: &str, key: &Key, components: &[String]) -> String {
    let mut out = format!("{path}  {}\n", key.facts());
    if !components.is_empty() {
        let _ = writeln!(out, "  of {}", prose(&components.join(", "), 5));
    }
    let _ = writeln!(out, "  {}\n", prose(&key.description, 2));
    out
}

fn of_table(table: &Table) -> String {
    if table.components.is_empty() {
        return format!("{}\n\n{}", table.heading(), keys(&table.keys()));
    }
    let mut out = format!("{}\n  name  one of {}\n\n", table.heading(), prose(&table.names().join(", "), 15));
    let path = &table.path;
    out += &keys(&table.shared_keys());
    out + &format!("`ddp-run explain {path}.{}` has the keys of one.\n", table.components[0].name)
}

/// A paragraph a key.
fn keys(keys: &[Key]) -> String {
    let mut out = String::new();
    for key in keys {
        let _ = writeln!(out, "{}  {}", key.name, key.facts());
        let _ = writeln!(out, "  {}\n", prose(&key.description, 2));
    }
    out
}

/// Prose before keys; empty for no text.
fn paragraph(text: &str) -> String {
    if text.is_empty() { String::new() } else { prose(text, 0) + "\n\n" }
}

/// Prose in lines.
fn prose(text: &str, indent: usize) -> String {
    wrapped(unlinked(text).split_whitespace(), indent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::error::ErrorKind;

    fn explanation(path: &str) -> Result<String> {
        explained(&Reference::new(&Registry::standard()), path)
    }

    #[test]
    fn a_key_is_told_with_the_components_that_have_it() {
        let text = explanation("optimizer.betas").unwrap();
        assert!(
            text.contains("list of 2 floats; each at least 0 and below 1; default [0.9, 0.999]"),
            "{text}"
        );
        assert!(text.contains("  of adam, adamw"), "{text}");
        assert!(text.contains("list of 3 floats"), "that of adan:\n{text}");
        let text = explanation("seed").unwrap();
        assert!(
            text.starts_with("seed  integer; at least 0; default 0\n  Seed of every random number"),
            "{text}"
        );
        for (path, part) in [
            ("optimizer.name", "one of sgd, adam"),
            ("optimizer.group.lr", "optimizer.group.lr  float"),
            ("optimizer.adamw.lr", "optimizer.lr  float; at least 0; default 0.001\n  of adamw\n"),
            ("scheduler.step.gamma", "scheduler.gamma  float"),
            ("scheduler.0.name", "[[scheduler]]\n  name  one of constant"),
            ("scheduler.1.gamma", "scheduler.gamma  float"),
            ("task", "[task]\n  name  one of classification, regression, language-modelling"),
            ("task.language-modelling", "sequences of tokens"),
            ("loss", "This program has none"),
            ("metric.name", "[[metric]]"),
            ("extends", "Another spec"),
            ("adamw", "[optimizer] name = \"adamw\"\n"),
            ("text", "[dataset] name = \"text\"\n"),
            ("lr", "optimizer.lr  float; at least 0; default 0.001\n  of "),
            ("keep_last", "checkpoint.keep_last  "),
            ("betas", "list of 3 floats"),
            ("bf16", "[distributed] comm_hook = \"bf16\""),
        ] {
            let text = explanation(path).unwrap();
            assert!(text.contains(part), "{path}:\n{text}");
        }
        let of_group = explanation("optimizer.group.lr").unwrap();
        assert!(!of_group.contains("default"), "it is that of the table:\n{of_group}");
        assert_eq!(of_group.matches("Learning rate.").count(), 1, "{of_group}");
        let text = explanation("metrics.log_every").unwrap();
        assert!(text.contains("does not change results"), "{text}");
        let text = explanation("dataset.val_split").unwrap();
        assert!(text.contains("  of ") && !text.contains("shapes"), "{text}");
    }

    #[test]
    fn tables_and_components_are_told_with_their_keys() {
        let text = explanation("checkpoint").unwrap();
        assert!(text.starts_with("[checkpoint]\n") && text.contains("\nkeep_last  "), "{text}");
        let text = explanation("[optimizer]").or_else(|_| explanation("optimizer")).unwrap();
        assert!(text.contains("name  one of sgd, adam") && text.contains("optimizer.sgd"), "{text}");
        let text = explanation("model.gpt").unwrap();
        assert!(text.contains("A decoder-only transformer") && text.contains("\nn_layer  integer"), "{text}");
    }

    #[test]
    fn an_unknown_path_has_a_suggestion() {
        for (path, part) in [
            ("optimiser.lr", "no table `optimiser`; did you mean `optimizer`?"),
            ("optimizer.bettas", "no key `bettas` in [optimizer]; did you mean `betas`?"),
            ("model.resnet81", "did you mean `resnet18`?"),
            ("model.resnet18.layers", "no key `layers` of model.resnet18"),
            ("model.resnet18.x.y", "no table `model.resnet18.x`"),
            ("sede", "no key, table or component `sede`; did you mean `seed`?"),
            ("optimise", "no key, table or component `optimise`; did you mean `optimizer`?"),
            ("resnet81", "no key, table or component `resnet81`; did you mean `resnet18`?"),
            ("foo", "hint: `ddp-run explain` lists the tables"),
            ("optimizer.foo", "hint: `ddp-run explain optimizer` lists what is there"),
        ] {
            let error = explanation(path).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
