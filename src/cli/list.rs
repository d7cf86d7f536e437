//! `ddp-run list`: the names that a spec may give.

use base::error::Result;
use clap::ValueEnum;
use job::reference::{Component, Reference};
use job::registry::Registry;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Only these
    #[arg(value_enum)]
    pub kind: Option<ListKind>,
    /// Print JSON, with the keys of each
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListKind {
    Models,
    Datasets,
    Optimizers,
    Schedules,
    Hooks,
    Tasks,
    Losses,
    Metrics,
    Transforms,
    Observers,
}

impl ListKind {
    /// The table whose `name` selects one; hooks are selected by a key.
    fn table(self) -> &'static str {
        match self {
            ListKind::Models => "model",
            ListKind::Datasets => "dataset",
            ListKind::Optimizers => "optimizer",
            ListKind::Schedules => "scheduler",
            ListKind::Hooks => "",
            ListKind::Tasks => "task",
            ListKind::Losses => "loss",
            ListKind::Metrics => "metric",
            ListKind::Transforms => "transform",
            ListKind::Observers => "observer",
        }
    }
}

/// Prints the components that specs of this program can name.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let reference = Reference::new(registry);
    let kinds: Vec<ListKind> =
        args.kind.map_or_else(|| ListKind::value_variants().to_vec(), |kind| vec![kind]);
    let text = match args.json {
        true => format!("{:#}", json(&reference, &kinds)),
        false => text(&reference, &kinds, args.kind.is_some()),
    };
    super::print(&format!("{}\n", text.trim_end()))
}

/// The name of a kind on the command line.
fn title(kind: ListKind) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

fn components(reference: &Reference, kind: ListKind) -> &[Component] {
    match kind {
        ListKind::Hooks => &reference.hooks,
        _ => reference.table(kind.table()).map_or(&[], |table| &table.components),
    }
}

/// With `alone`, the kind was asked for: it is shown if it is empty, too.
fn text(reference: &Reference, kinds: &[ListKind], alone: bool) -> String {
    let mut out = String::new();
    for kind in kinds {
        let components = components(reference, *kind).iter();
        let rows: Vec<(&str, &str)> = components.map(|c| (c.name.as_str(), c.summary.as_str())).collect();
        if rows.is_empty() && !alone {
            continue;
        }
        let _ = writeln!(out, "{}", title(*kind));
        if rows.is_empty() {
            let _ = writeln!(out, "  this program has none (docs/extending.md)");
        }
        let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, about) in rows {
            let _ = writeln!(out, "{}", format!("  {name:width$}  {about}").trim_end());
        }
        out.push('\n');
    }
    out
}

fn json(reference: &Reference, kinds: &[ListKind]) -> Json {
    let of = |kind: &ListKind| -> Vec<Json> {
        let component = |c: &Component| json!({ "name": c.name, "summary": c.summary, "about": c.about, "keys": c.keys() });
        components(reference, *kind).iter().map(component).collect()
    };
    Json::Object(kinds.iter().map(|kind| (title(*kind), of(kind).into())).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names that share a declaration are told apart.
    #[test]
    fn each_name_has_a_line_of_its_own() {
        let reference = Reference::new(&Registry::standard());
        for kind in ListKind::value_variants() {
            let components = components(&reference, *kind);
            let lines: BTreeSet<&str> = components.iter().map(|c| c.summary.as_str()).collect();
            assert_eq!(lines.len(), components.len(), "{kind:?}: {lines:?}");
            assert!(!lines.contains(""), "{kind:?}: {lines:?}");
        }
    }
}
