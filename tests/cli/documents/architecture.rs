//! What the rows of ARCHITECTURE.md's tables name is in the files and folders of src/ and of crates/ that the same row names. (`files` looks for the
//! files themselves.) The table of tests in CONTRIBUTING.md is complete.

use super::markdown::spans;
use super::{read, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What defines a name that stands behind it.
const KEYWORDS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "type", "mod", "macro_rules!"];

/// The rows of the table whose first column has this heading.
fn rows<'a>(document: &'a str, heading: &str) -> Vec<&'a str> {
    let heading = format!("| {heading} |");
    let table = document.lines().skip_while(|line| !line.starts_with(&heading));
    table.skip(2).take_while(|line| line.starts_with('|')).collect()
}

/// The text of a file, or of all files below a folder.
fn sources(path: &Path) -> String {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| sources(&entry.path())).collect(),
        Err(_) => std::fs::read_to_string(path).unwrap_or_default(),
    }
}

fn is_identifier_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether `source` defines this item, or a field of this name.
fn defines(source: &str, name: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(is_identifier_char);
    let by_keyword = KEYWORDS.iter().any(|keyword| {
        let definition = format!("{keyword} {name}");
        source.match_indices(&definition).any(|(at, _)| ends(&source[at + definition.len()..]))
    });
    let field = format!("{name}:");
    by_keyword || source.lines().any(|line| line.trim_start().trim_start_matches("pub ").starts_with(&field))
}

/// Where a span of a row is, if it is a path: below src/, below a crate (`collectives/gloo`), or from the root.
fn place(span: &str) -> Option<PathBuf> {
    let in_crate =
        span.split_once('/').map(|(name, rest)| root().join("crates").join(name).join("src").join(rest));
    let places = [Some(root().join("src").join(span)), in_crate, Some(root().join(span))];
    places.into_iter().flatten().find(|path| !span.is_empty() && path.exists())
}

/// What a row names that is not there: `Type::method`, `Type`, `macro!`, and with `words` also `function`.
fn missing(row: &str, words: bool) -> Vec<String> {
    let source: String = spans(row).filter_map(place).map(|path| sources(&path)).collect();
    let is_name = |span: &&str| {
        let name = span.trim_end_matches('!');
        let marked = name.starts_with(char::is_uppercase) || name.contains("::") || name != *span;
        place(span).is_none()
            && name.split("::").all(|n| !n.is_empty() && n.chars().all(is_identifier_char))
            && (words || marked)
    };
    let absent = |span: &&str| {
        let path: Vec<&str> = span.trim_end_matches('!').split("::").collect();
        let (name, of) = path.split_last().expect("not empty");
        // A module that is named before an item is one of the row's paths.
        !(defines(&source, name)
            && of.iter().all(|of| of.starts_with(char::is_lowercase) || defines(&source, of)))
    };
    spans(row).filter(is_name).filter(absent).map(str::to_owned).collect()
}

#[test]
fn what_the_tables_name_is_defined_where_they_say() {
    let document = read("ARCHITECTURE.md");
    for (heading, words) in [("crate", false), ("module", false), ("change", true)] {
        let rows = rows(&document, heading);
        assert!(rows.len() > 3, "the table of {heading}s: {rows:?}");
        for row in rows {
            let missing = missing(row, words);
            assert!(missing.is_empty(), "not in the files that this row names: {missing:?}\n{row}");
        }
    }
}

#[test]
fn a_name_that_is_not_there_is_found() {
    let row = "| `launch/clusters/worker.rs` | `WorkerEnv`, `WorkerEnv::endpoint`, `rendezvous`, `status!`, `--set`, `a b` |";
    assert_eq!(missing(row, true), ["status!"]);
    let row = "| `launch/clusters/worker.rs`, `base/status.rs` | `Worker`, `WorkerEnv::gone`, `Gone::endpoint`, `meeting`, `status!`, `key` |";
    assert_eq!(missing(row, true), ["Worker", "WorkerEnv::gone", "Gone::endpoint", "meeting"]);
    assert_eq!(missing(row, false), ["Worker", "WorkerEnv::gone", "Gone::endpoint"]);
}

/// As arguments of `cargo test --test`: `PROGRAM MODULE::`.
#[test]
fn the_table_of_tests_has_every_module_with_tests() {
    let document = read("CONTRIBUTING.md");
    let listed: BTreeSet<String> =
        rows(&document, "feature").iter().filter_map(|row| Some(spans(row).last()?.to_owned())).collect();
    let folder = root().join("tests");
    let mut modules = BTreeSet::new();
    for program in ["cli", "faults", "features", "launch", "run", "tools"] {
        let declared = read(&format!("tests/{program}/main.rs"));
        for module in declared.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')) {
            let path = folder.join(program).join(module);
            let source = if path.is_dir() { sources(&path) } else { sources(&path.with_extension("rs")) };
            if source.contains("#[test]") {
                modules.insert(format!("{program} {module}::"));
            }
        }
    }
    assert_eq!(listed, modules);
}
