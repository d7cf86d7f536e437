//! The modules of src/ stand in one order, that of the table in ARCHITECTURE.md, and import only modules below their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The names in the first column of ARCHITECTURE.md's table of modules, from the highest to the lowest.
fn order() -> Vec<String> {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rows = document.lines().skip_while(|line| !line.starts_with("| module |")).skip(2);
    let columns = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next());
    // Every other piece stands between backticks.
    let names = columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    names.map(|name| module(name).to_owned()).collect()
}

/// The module of a path below src/.
fn module(path: &str) -> &str {
    path.split('/').next().unwrap_or(path).trim_end_matches(".rs")
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.trim_end_matches(".rs");
        stem == "tests" || stem == "testing" || stem.ends_with("_tests")
    })
}

/// Every file below src/ that is not of tests, by its path from there.
fn files() -> BTreeMap<String, String> {
    let src = root().join("src");
    let (mut folders, mut files) = (vec![src.clone()], BTreeMap::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of src/").flatten() {
            let path = entry.path();
            let name = path.strip_prefix(&src).unwrap_or(Path::new("")).to_string_lossy().into_owned();
            if is_test(&name) {
            } else if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") {
                files.insert(name, fs::read_to_string(&path).expect("a source file"));
            }
        }
    }
    files
}

/// The lines of `source` without comments and without its test modules.
fn code(source: &str) -> impl Iterator<Item = &str> {
    let (mut behind_cfg, mut in_tests) = (false, false);
    source.lines().filter_map(move |line| {
        if in_tests {
            in_tests = line != "}";
            return None;
        }
        in_tests = behind_cfg && line.starts_with("mod ") && line.ends_with('{');
        behind_cfg = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,");
        line.split("//").next()
    })
}

/// The modules that `source` names by `crate::`, outside of comments and of its test modules.
fn imports(source: &str) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for line in code(source) {
        for path in line.split("crate::").skip(1) {
            assert!(!path.starts_with(['{', '*']), "one `use` a module: {line}");
            found.insert(path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
        }
    }
    found
}

/// Whether `line` has the identifier `word`.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word)
}

/// The fields of a variable or a field `plan` that `line` reads; a call of a method is none.
fn fields_of_plan(line: &str) -> Vec<&str> {
    let before = |at: usize| line[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_');
    let reads = line.match_indices("plan.").filter(|(at, _)| !before(*at)).map(|(at, _)| &line[at + 5..]);
    let names = reads.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (end > 0 && !rest[end..].starts_with('(')).then(|| &rest[..end])
    });
    names.collect()
}

#[test]
fn no_room_imports_a_higher_one() {
    let order = order();
    let height: BTreeMap<&str, usize> =
        order.iter().rev().enumerate().map(|(h, n)| (n.as_str(), h)).collect();
    let mut upwards = BTreeSet::new();
    for (file, source) in &files() {
        // Its own items are the crate's root.
        let Some(own) = height.get(module(file)) else { continue };
        for import in imports(source) {
            // Items of the root are no module's.
            if height.get(import).is_some_and(|other| other > own) {
                upwards.insert((file.clone(), import.to_owned()));
            }
        }
    }
    assert!(
        upwards.is_empty(),
        "these import a module that stands above their own in ARCHITECTURE.md: {upwards:?}"
    );
}

#[test]
fn every_room_has_its_place_in_the_order() {
    let order = order();
    let listed: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), order.len(), "a module stands twice in ARCHITECTURE.md: {order:?}");
    let files = files();
    let there: BTreeSet<&str> =
        files.keys().map(|file| module(file)).filter(|module| *module != "lib").collect();
    assert_eq!(listed, there, "ARCHITECTURE.md (left) and src/ (right) have other modules");
}

/// The files of src/worker/ that may name the whole `Plan`, and why. This list only gets shorter.
const NAME_THE_PLAN: [&str; 6] = [
    // Takes it apart.
    "worker/parts.rs",
    // Resolves it from what the supervisor sent.
    "worker/rank.rs",
    // Compares it with the spec of a checkpoint.
    "worker/spec_changes.rs",
    // `run.json` says which keys are set.
    "worker/start_state.rs",
    // `Job` has it; the lines before the first step tell all of it.
    "worker/training.rs",
    // `usage.json` has all of it.
    "worker/usage.rs",
];

#[test]
fn one_file_of_the_worker_takes_the_plan_apart() {
    let files = files();
    let worker = || files.iter().filter(|(file, _)| file.starts_with("worker/"));
    let naming = worker().filter(|(_, source)| code(source).any(|line| has_word(line, "Plan")));
    let naming: Vec<&str> = naming.map(|(file, _)| file.as_str()).collect();
    assert_eq!(naming, NAME_THE_PLAN, "the files that name `Plan` (left) are not those that may (right)");
    let reading = worker().filter(|(file, _)| *file != "worker/parts.rs");
    let reading =
        reading.flat_map(|(file, source)| code(source).map(move |line| (file, fields_of_plan(line))));
    let reading: Vec<_> = reading.filter(|(_, fields)| !fields.is_empty()).collect();
    assert!(reading.is_empty(), "only worker/parts.rs reads fields of the plan: {reading:?}");
}

#[test]
fn reads_of_the_plan_are_found() {
    let line = "f(plan.seed, &self.plan.model.name, my_plan.x, plan.settings(), plan. )";
    assert_eq!(fields_of_plan(line), ["seed", "model"]);
    assert!(has_word("x: &Plan,", "Plan") && !has_word("x: &ModelPlan, y: Plans", "Plan"));
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let source = "//! See [`crate::cli`].\n\
        use crate::comm::{CommError, rendezvous::Secret};\n\
        pub(crate) fn f(x: crate::data::X) -> crate::plan::Y { crate::spec::z() } // crate::worker\n\
        #[cfg(test)]\nmod tests {\n    use crate::train::Trainer;\n}\n\
        #[cfg(test)]\n#[path = \"t.rs\"]\nmod model;\n\
        fn g() { status!(\"{}\", crate::display::message(\"\")) }\n";
    assert_eq!(imports(source), ["comm", "data", "plan", "show", "spec"].into());
}
