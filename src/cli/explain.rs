//! `ddp-run explain`: what a key, a table or a component of specs means.

use crate::error::{Error, ExitCode, Result};
use crate::reference::{EXTENDS, Key, Reference, Table};
use crate::registry::Registry;
use crate::show::wrapped;
use crate::spec::did_you_mean;
use std::fmt::Write;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A key (`optimizer.betas`), a table (`optimizer`) or a component (`optimizer.adamw`); without it, all tables
    #[arg(value_name = "KEY")]
    pub key: Option<String>,
}

/// Prints the explanation to standard output.
///
/// # Errors
/// Exit 2: there is no such key, table or component.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let reference = Reference::of(registry);
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
    out + "\n`ddp-run explain TABLE`, `TABLE.KEY` or `TABLE.COMPONENT` tells more.\n"
}

fn explained(reference: &Reference, path: &str) -> Result<String> {
    if let Some(table) = reference.table(path).filter(|_| !path.is_empty()) {
        return Ok(of_table(table));
    }
    let (table, name) = path.rsplit_once('.').unwrap_or(("", path));
    let unknown = |what: String| Err(Error::new(ExitCode::Usage, what));
    let Some(table) = reference.table(table) else {
        let tables = reference.tables.iter().map(|table| table.path.as_str()).filter(|path| !path.is_empty());
        return unknown(format!("no table `{table}`{}", did_you_mean(table, tables)));
    };
    if let Some(component) = table.component(name) {
        let about = Some(&component.about).filter(|about| !about.is_empty());
        let about = about.map(|about| prose(about, 0) + "\n\n").unwrap_or_default();
        return Ok(format!("{} name = \"{name}\"\n{about}{}", table.heading(), keys(&component.keys())));
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
        // A group has its optimizer's keys.
        found = optimizers.with_key(name);
    }
    if found.is_empty() {
        let known = table.known();
        let of = if table.path.is_empty() {
            "at the top level".to_owned()
        } else {
            format!("in {}", table.heading())
        };
        return unknown(format!(
            "no key `{name}` {of}{}",
            did_you_mean(name, known.iter().map(String::as_str))
        ));
    }
    let mut out = String::new();
    for (key, components) in found {
        let _ = writeln!(out, "{path}  {}", key.facts());
        if !components.is_empty() {
            let _ = writeln!(out, "  of {}", prose(&components.join(", "), 5));
        }
        let _ = writeln!(out, "  {}\n", prose(&key.description, 2));
    }
    Ok(out)
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

/// Prose in lines.
fn prose(text: &str, indent: usize) -> String {
    wrapped(text.split_whitespace(), indent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Result<String> {
        explained(&Reference::of(&Registry::standard()), path)
    }

    #[test]
    fn a_key_is_told_with_the_components_that_have_it() {
        let text = of("optimizer.betas").unwrap();
        assert!(
            text.contains("list of 2 floats; each at least 0 and below 1; default [0.9, 0.999]"),
            "{text}"
        );
        assert!(text.contains("  of adam, adamw"), "{text}");
        assert!(text.contains("list of 3 floats"), "that of adan:\n{text}");
        let text = of("seed").unwrap();
        assert!(
            text.starts_with("seed  integer; at least 0; default 0\n  Seed of every random number"),
            "{text}"
        );
        for (path, part) in [
            ("optimizer.name", "one of sgd, adam"),
            ("optimizer.group.lr", "optimizer.group.lr  float"),
            ("extends", "Another spec"),
        ] {
            let text = of(path).unwrap();
            assert!(text.contains(part), "{path}:\n{text}");
        }
        let text = of("metrics.log_every").unwrap();
        assert!(text.contains("does not change results"), "{text}");
        let text = of("dataset.val_split").unwrap();
        assert!(text.contains("  of ") && !text.contains("shapes"), "{text}");
    }

    #[test]
    fn tables_and_components_are_told_with_their_keys() {
        let text = of("checkpoint").unwrap();
        assert!(text.starts_with("[checkpoint]\n") && text.contains("\nkeep_last  "), "{text}");
        let text = of("[optimizer]").or_else(|_| of("optimizer")).unwrap();
        assert!(text.contains("name  one of sgd, adam") && text.contains("optimizer.sgd"), "{text}");
        let text = of("model.gpt").unwrap();
        assert!(text.contains("A decoder-only transformer") && text.contains("\nn_layer  integer"), "{text}");
    }

    #[test]
    fn an_unknown_path_has_a_suggestion() {
        for (path, part) in [
            ("optimiser.lr", "no table `optimiser`; did you mean `optimizer`?"),
            ("optimizer.bettas", "no key `bettas` in [optimizer]; did you mean `betas`?"),
            ("model.resnet81", "did you mean `resnet18`?"),
            ("model.resnet18.layers", "no table `model.resnet18`"),
            ("sede", "no key `sede` at the top level; did you mean `seed`?"),
        ] {
            let error = of(path).unwrap_err();
            assert_eq!(error.code, ExitCode::Usage);
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
}
