//! Documents and comments name no file that is not in the repository.
//!
//! What counts as the name of a file of the repository, everywhere in a document and in comments:
//! * a word that begins with a top-level folder of the repository (`docs/…`, `src/…`), and
//! * a word that ends in `.md`, or in the extension of a program (`.rs`, `.py`, `.sh`, `.sbatch`): the end of a path is enough;
//! * between backticks, a path that begins with a folder of src/ (`data/sets`), but for `runs/…`: a user's runs; or with the name of a crate (`collectives/gloo`)
//!   and goes on below its src/.

use super::markdown::spans;
use super::{documents, root};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FOLDERS: [&str; 11] =
    [".ci", "benches", "configs", "crates", "docs", "examples", "fuzz", "jobs", "scripts", "src", "tests"];

/// Paths of the repository, whole and from each folder on.
struct Paths {
    ends: BTreeSet<String>,
    /// Folders of src/ and names of crates.
    modules: BTreeSet<String>,
}

/// Every file and folder below `folder`, by its path from the root.
fn below(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(folder)).expect("a folder").flatten() {
        let path = folder.join(entry.file_name());
        found.push(path.to_string_lossy().into_owned());
        // What is built, and what tests leave.
        let built = ["target", "__pycache__", "corpus", "artifacts"];
        if entry.path().is_dir() && !built.iter().any(|name| path.ends_with(name)) {
            below(&path, found);
        }
    }
}

/// Every file and folder, by its path from the root.
fn all() -> Vec<String> {
    let mut all: Vec<String> = FOLDERS.map(str::to_owned).into();
    FOLDERS.iter().for_each(|folder| below(Path::new(folder), &mut all));
    let entries = fs::read_dir(root()).expect("the repository").flatten();
    all.extend(entries.filter(|e| e.path().is_file()).map(|e| e.file_name().to_string_lossy().into_owned()));
    all
}

impl Paths {
    fn new(all: &[String]) -> Self {
        let ends = all.iter().flat_map(|path| {
            let starts = path.match_indices('/').map(|(at, _)| at + 1);
            [0].into_iter().chain(starts).map(|at| path[at..].to_owned())
        });
        let in_crates = all.iter().filter_map(|path| path.strip_prefix("crates/")?.split_once("/src/"));
        let in_src = all.iter().filter_map(|path| path.strip_prefix("src/")?.split_once('/'));
        let modules = in_src.chain(in_crates.clone()).map(|(module, _)| module.to_owned());
        let ends = ends.chain(in_crates.map(|(name, rest)| format!("{name}/{rest}")));
        Self { ends: ends.collect(), modules: modules.filter(|module| module != "runs").collect() }
    }

    fn has(&self, path: &str) -> bool {
        // A module may be named without `.rs`.
        self.ends.contains(path) || self.ends.contains(&format!("{path}.rs"))
    }

    /// The word, if it names a file of the repository that is not there.
    fn missing<'a>(&self, word: &'a str, in_backticks: bool) -> Option<&'a str> {
        let path = word.trim_end_matches(['.', '/']);
        let first = path.split_once('/').map(|(first, _)| first);
        let names = first
            .is_some_and(|folder| FOLDERS.contains(&folder) || in_backticks && self.modules.contains(folder));
        let extensions = [".md", ".rs", ".py", ".sh", ".sbatch"];
        let named = names || extensions.iter().any(|e| path.len() > e.len() && path.ends_with(e));
        (named && !self.has(path.trim_start_matches("../"))).then_some(path)
    }
}

/// The words of `text` that can be paths.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && !"_./-".contains(c)).filter(|word| !word.is_empty())
}

/// What of a line of the file at `path` is comment.
fn comment<'a>(path: &str, line: &'a str) -> &'a str {
    let begin = match path.rsplit('.').next() {
        Some("rs" | "c") => "//",
        Some("md" | "html") => "",
        _ => "#",
    };
    let start = line.match_indices(begin).map(|(at, _)| at);
    let mut at = start.filter(|at| *at == 0 || line[..*at].ends_with([' ', '\t']));
    at.next().map_or("", |at| &line[at..])
}

fn wrong_lines(path: &str, text: &str, paths: &Paths) -> Vec<String> {
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let comment = comment(path, line);
        // A link's address is relative to its document; `links` follows it.
        let linked: Vec<&str> = comment.split("](").skip(1).flat_map(|rest| rest.split(')').next()).collect();
        let plain = words(comment).filter(|w| !linked.iter().any(|l| l.contains(w)));
        let missing = plain.filter_map(|word| paths.missing(word, false));
        let spans = spans(comment).flat_map(words).filter_map(|word| paths.missing(word, true));
        let found: BTreeSet<&str> = missing.chain(spans).collect();
        wrong.extend(found.iter().map(|word| format!("{path}:{}: {word}", number + 1)));
    }
    wrong
}

#[test]
fn every_file_that_is_named_is_there() {
    let all = all();
    let paths = Paths::new(&all);
    let is_text = |path: &String| !path.ends_with(".snap") && !path.contains("testdata");
    let sources =
        all.iter().filter(|path| root().join(path).is_file() && is_text(path) && path.contains('/'));
    let mut read = 0;
    let mut wrong = Vec::new();
    for path in sources.cloned().chain(documents()).collect::<BTreeSet<_>>() {
        if let Ok(text) = fs::read_to_string(root().join(&path)) {
            read += 1;
            wrong.extend(wrong_lines(&path, &text, &paths));
        }
    }
    assert!(wrong.is_empty(), "these are not in the repository:\n{}", wrong.join("\n"));
    assert!(read > 300, "only {read} files were read");
}

#[test]
fn a_file_that_is_not_there_is_found() {
    let paths = Paths::new(
        &["crates/collectives/src/gloo", "crates/collectives/src/gloo/mod.rs", "docs/spec.md", "jobs/env.sh"]
            .map(str::to_owned),
    );
    let wrong = |text: &str| wrong_lines("a.rs", text, &paths);
    let none: [&str; 0] = [];
    assert_eq!(
        wrong("let x = 1; // see docs/spec.md, `collectives/gloo`, mod.rs and `jobs/env.sh SPEC`."),
        none
    );
    assert_eq!(wrong("\"https://x.invalid/DESIGN.md\""), none);
    // Names that are put together here, so that they are not in a comment of this file.
    for name in ["DESIGN.md", "docs/none", "gloo/none.rs", "`collectives/none`"] {
        assert_eq!(wrong(&format!("// see {name}")).len(), 1, "{name}");
    }
}
