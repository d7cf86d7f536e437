//! The rooms of src/ stand in one order, that of the table in ARCHITECTURE.md, and import only rooms below their own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The names in the first column of ARCHITECTURE.md's table of rooms, from the highest to the lowest.
fn order() -> Vec<String> {
    let document = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let rows = document.lines().skip_while(|line| !line.starts_with("| room |")).skip(2);
    let columns = rows.map_while(|row| row.strip_prefix("| ")?.split(" | ").next());
    // Every other piece stands between backticks.
    let names = columns.flat_map(|column| column.split('`').skip(1).step_by(2));
    names.map(|name| room(name).to_owned()).collect()
}

/// The room of a path below src/.
fn room(path: &str) -> &str {
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

/// The rooms that `source` names by `crate::`, outside of comments and of its test modules.
fn imports(source: &str) -> BTreeSet<&str> {
    let (mut found, mut behind_cfg, mut in_tests) = (BTreeSet::new(), false, false);
    for line in source.lines() {
        if in_tests {
            in_tests = line != "}";
            continue;
        }
        in_tests = behind_cfg && line.starts_with("mod ") && line.ends_with('{');
        behind_cfg = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test,");
        let code = line.split("//").next().unwrap_or_default();
        for path in code.split("crate::").skip(1) {
            assert!(!path.starts_with(['{', '*']), "one `use` a room: {line}");
            found.insert(path.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default());
        }
    }
    found
}

#[test]
fn no_room_imports_a_higher_one() {
    let order = order();
    let height: BTreeMap<&str, usize> =
        order.iter().rev().enumerate().map(|(h, n)| (n.as_str(), h)).collect();
    let mut upwards = BTreeSet::new();
    for (file, source) in &files() {
        // Its own items are the crate's root.
        let Some(own) = height.get(room(file)) else { continue };
        for import in imports(source) {
            // Items of the root are nobody's room.
            if height.get(import).is_some_and(|other| other > own) {
                upwards.insert((file.clone(), import.to_owned()));
            }
        }
    }
    assert!(
        upwards.is_empty(),
        "these import a room that stands above their own in ARCHITECTURE.md: {upwards:?}"
    );
}

#[test]
fn every_room_has_its_place_in_the_order() {
    let order = order();
    let listed: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    assert_eq!(listed.len(), order.len(), "a room stands twice in ARCHITECTURE.md: {order:?}");
    let files = files();
    let there: BTreeSet<&str> = files.keys().map(|file| room(file)).filter(|room| *room != "lib").collect();
    assert_eq!(listed, there, "ARCHITECTURE.md (left) and src/ (right) have other rooms");
}

#[test]
fn imports_are_read_as_the_compiler_reads_them() {
    let source = "//! See [`crate::cli`].\n\
        use crate::comm::{CommError, rendezvous::Secret};\n\
        pub(crate) fn f(x: crate::data::X) -> crate::plan::Y { crate::spec::z() } // crate::worker\n\
        #[cfg(test)]\nmod tests {\n    use crate::train::Trainer;\n}\n\
        #[cfg(test)]\n#[path = \"t.rs\"]\nmod model;\n\
        fn g() { say!(\"{}\", crate::show::message(\"\")) }\n";
    assert_eq!(imports(source), ["comm", "data", "plan", "show", "spec"].into());
}
