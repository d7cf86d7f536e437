//! Words that fit a command line: keys of `--set`, `--unset` and `explain`, and their values.

use clap_complete::CompletionCandidate;
use job::plan::one_line;
use job::reference::{Reference, Table, unlinked, without_indices};
use job::registry::Registry;
use spec::{JobTree, Override};
use std::ffi::OsString;
use std::path::Path;

/// A command line that is being typed.
pub struct TypedLine {
    registry: Registry,
    words: Vec<String>,
}

impl TypedLine {
    pub fn new(registry: &Registry, words: &[OsString]) -> Self {
        let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        Self { registry: registry.clone(), words }
    }

    /// `KEY=` and `KEY=VALUE`, by the components that the spec on the line names.
    pub fn set(&self, typed: &str) -> Vec<CompletionCandidate> {
        let (reference, spec) = (Reference::new(&self.registry), self.spec(typed));
        let chosen = |path: &str| Some(spec.as_ref()?.string(&format!("{path}.name"))?.to_owned());
        let Some((key, value)) = typed.split_once('=') else {
            return keys(&reference, spec.as_ref(), typed, "=");
        };
        let (table, name) = key.rsplit_once('.').unwrap_or(("", key));
        let plain = without_indices(table);
        // The spec's path has an index where the table is one of several.
        let chosen = |path: &str| chosen(if path == plain { table } else { path });
        let known = reference.keys_at(&plain, &chosen).into_iter().find(|known| known.name == name);
        let of = |choice: job::reference::Choice| {
            let word = choice.value.as_str().map_or_else(|| one_line(&choice.value), str::to_owned);
            word.starts_with(value).then(|| candidate(format!("{key}={word}"), &choice.about))
        };
        let is_list = known.as_ref().is_some_and(|known| known.kind.starts_with("list"));
        known.filter(|_| !is_list).into_iter().flat_map(|known| known.choices).filter_map(of).collect()
    }

    /// What the spec on the line sets; without one, all keys.
    pub fn unset(&self, typed: &str) -> Vec<CompletionCandidate> {
        match self.spec(typed) {
            None => keys(&Reference::new(&self.registry), None, typed, ""),
            Some(spec) => {
                let set = spec.paths().into_iter().filter(|path| path.starts_with(typed));
                set.map(|path| candidate(path, "")).collect()
            }
        }
    }

    /// Tables and keys of the top level; what is in a table when no other can be meant.
    pub fn explain(&self, typed: &str) -> Vec<CompletionCandidate> {
        let reference = Reference::new(&self.registry);
        let tables = reference.tables.iter().filter(|table| !table.path.is_empty());
        let mut found: Vec<String> = tables.clone().map(|table| table.path.clone()).collect();
        found.extend(reference.table("").into_iter().flat_map(Table::known));
        found.retain(|path| path.starts_with(typed));
        if found.len() <= 1 || typed.contains('.') {
            let within = |table: &Table| {
                let path = table.path.clone();
                table.known().into_iter().map(move |name| format!("{path}.{name}")).collect::<Vec<_>>()
            };
            found.extend(tables.flat_map(within).filter(|path| path.starts_with(typed)));
        }
        found.dedup();
        found.into_iter().map(|path| candidate(path, "")).collect()
    }

    /// The spec on the line with its edits but the one that is being `typed`; `None` if there is none that can be read.
    fn spec(&self, typed: &str) -> Option<JobTree> {
        let (mut specs, mut sets, mut unsets) = (Vec::new(), Vec::new(), Vec::new());
        let mut words = self.words.iter().skip(1);
        while let Some(word) = words.next() {
            let (flag, value) = word.split_once('=').unzip();
            let flag = flag.unwrap_or(word);
            if !["--set", "--unset"].contains(&flag) {
                specs.push(word);
                continue;
            }
            let Some(value) = value.map(str::to_owned).or_else(|| words.next().cloned()) else { break };
            match flag {
                _ if value == typed => {}
                "--set" => sets.push(Override::Set(value)),
                _ => unsets.push(Override::Unset(value)),
            }
        }
        let spec = specs.into_iter().find(|word| word.ends_with(".toml") && Path::new(word).is_file())?;
        unsets.append(&mut sets);
        JobTree::load(Path::new(spec), &unsets).ok()
    }
}

/// The keys of all tables, by the components that the spec names, as `KEY` and an `end`.
fn keys(reference: &Reference, spec: Option<&JobTree>, typed: &str, end: &str) -> Vec<CompletionCandidate> {
    let chosen = |path: &str| Some(spec?.string(&format!("{path}.name"))?.to_owned());
    let mut found = Vec::new();
    for table in &reference.tables {
        let is_set = |path: &str| spec.is_some_and(|spec| spec.place(path).is_some());
        // A list of tables has an index for each.
        let listed = |i: &usize| is_set(&format!("{}.{i}", table.path));
        let indices = (0..).take_while(listed).filter(|_| table.repeats && !table.path.is_empty());
        let mut paths: Vec<String> = indices.map(|i| format!("{}.{i}", table.path)).collect();
        if paths.is_empty() {
            paths.push(table.path.clone());
        }
        for path in paths {
            let chosen = |asked: &str| chosen(if asked == table.path { &path } else { asked });
            let prefix = if path.is_empty() { String::new() } else { format!("{path}.") };
            // `--set` can't change what a spec extends; a key that is a table has keys in it.
            let is_table = |name: &str| reference.table(&format!("{prefix}{name}")).is_some();
            let all = reference.keys_at(&table.path, &chosen).into_iter();
            let all = all.filter(|key| key.name != "extends" && !is_table(&key.name));
            found.extend(all.filter_map(|key| {
                let path = format!("{prefix}{}", key.name);
                path.starts_with(typed).then(|| candidate(format!("{path}{end}"), &key.description))
            }));
        }
    }
    found
}

/// With the first sentence of a description.
fn candidate(word: String, about: &str) -> CompletionCandidate {
    let about = unlinked(about);
    let sentence = about.split_inclusive(". ").next().unwrap_or_default().trim_end();
    let help = (!sentence.is_empty()).then(|| sentence.to_owned().into());
    CompletionCandidate::new(word).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = "name = 'a'\n[model]\nname = 'gpt'\n[optimizer]\nname = 'adamw'\n[[scheduler]]\nname = 'warmup'\n[[scheduler]]\nname = 'step'\n";

    /// The words that `complete` offers after `ddp-run check SPEC` and `words`.
    fn offered(
        words: &[&str],
        complete: fn(&TypedLine, &str) -> Vec<CompletionCandidate>,
        typed: &str,
    ) -> Vec<String> {
        let folder = tempfile::tempdir().expect("a folder");
        let spec = folder.path().join("job.toml");
        std::fs::write(&spec, SPEC).expect("written");
        let mut line: Vec<OsString> = vec!["ddp-run".into(), "check".into(), spec.into()];
        line.extend(words.iter().map(OsString::from));
        let found = complete(&TypedLine::new(&Registry::standard(), &line), typed);
        found.iter().map(|word| word.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn keys_are_those_of_the_specs_components() {
        let keys = offered(&[], TypedLine::set, "optimizer.b");
        assert_eq!(keys, ["optimizer.betas="]);
        assert_eq!(
            offered(&["--set", "optimizer.name=sgd"], TypedLine::set, "optimizer.mo"),
            ["optimizer.momentum="]
        );
        assert_eq!(
            offered(&[], TypedLine::set, "scheduler.1.st"),
            ["scheduler.1.step_size=", "scheduler.1.steps="]
        );
        assert!(offered(&[], TypedLine::set, "model.").contains(&"model.n_layer=".to_owned()));
        assert_eq!(offered(&[], TypedLine::set, "ext"), [""; 0]);
        let all = offered(&[], TypedLine::set, "");
        assert!(!all.contains(&"optimizer.group=".to_owned()), "{all:?}");
        assert!(all.contains(&"seed=".to_owned()) && all.contains(&"launch.nnodes=".to_owned()), "{all:?}");
    }

    #[test]
    fn values_are_names_and_choices() {
        assert_eq!(offered(&[], TypedLine::set, "optimizer.name=adamw"), ["optimizer.name=adamw"]);
        assert_eq!(offered(&[], TypedLine::set, "precision=f"), ["precision=f32", "precision=f16"]);
        assert_eq!(offered(&[], TypedLine::set, "launch.share_devices=t"), ["launch.share_devices=true"]);
        assert_eq!(offered(&[], TypedLine::set, "seed="), [""; 0]);
        assert_eq!(offered(&[], TypedLine::set, "device=c"), ["device=cpu", "device=cuda"]);
        assert_eq!(
            offered(&[], TypedLine::set, "metrics.top5="),
            ["true", "false", "auto"].map(|word| format!("metrics.top5={word}"))
        );
        assert_eq!(offered(&[], TypedLine::set, "no.such="), [""; 0]);
    }

    #[test]
    fn what_is_set_can_be_unset() {
        assert_eq!(
            offered(&[], TypedLine::unset, "sch"),
            ["scheduler", "scheduler.0.name", "scheduler.1.name"]
        );
        assert_eq!(offered(&["--unset", "scheduler"], TypedLine::unset, "sch"), [""; 0]);
    }

    #[test]
    fn explained_are_tables_and_what_is_in_them() {
        assert_eq!(offered(&[], TypedLine::explain, "see"), ["seed"]);
        assert!(offered(&[], TypedLine::explain, "").contains(&"optimizer".to_owned()));
        assert!(!offered(&[], TypedLine::explain, "").contains(&"optimizer.lr".to_owned()));
        let within = offered(&[], TypedLine::explain, "optimizer.adamw");
        assert_eq!(within, ["optimizer.adamw"]);
        assert!(offered(&[], TypedLine::explain, "chec").contains(&"checkpoint.best".to_owned()));
    }
}
