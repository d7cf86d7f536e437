//! What the documents say is so: links lead somewhere, files that are named are there, specs resolve, commands and flags exist, and
//! docs/spec.md has the keys and defaults of the code.

mod architecture;
mod commands;
mod excerpts;
mod files;
mod links;
mod markdown;
mod reference;
mod spec_reference;

use ddp_run::ExitCode;
use ddp_run::testing::FailureCause;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every document, by its path from the root.
fn documents() -> Vec<String> {
    let of = |folder: &str| {
        let entries = fs::read_dir(root().join(folder)).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let folder = PathBuf::from(folder);
        let paths = names.filter(|n| n.ends_with(".md")).map(move |name| folder.join(name));
        paths.map(|path| path.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let mut documents = [of(""), of("docs")].concat();
    documents.sort();
    assert!(documents.len() >= 10, "{documents:?}");
    documents
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < 120, "README.md has {lines} lines; the place for more is docs/");
}

#[test]
fn docs_failures_contains_the_table() {
    let row = |code: &ExitCode| {
        let cause = FailureCause::of_code(*code);
        let restart = cause.map_or("", |it| if it.is_retryable() { "tries again" } else { "does not" });
        format!("| {} | {} | {restart} |\n", *code as u8, code.meaning())
    };
    let rows: String = ExitCode::ALL.iter().map(row).collect();
    let table = format!("| exit code | meaning | `--max-restarts` |\n|---|---|---|\n{rows}\n");
    assert!(read("docs/failures.md").contains(&table), "docs/failures.md lacks this table:\n{table}");
}
