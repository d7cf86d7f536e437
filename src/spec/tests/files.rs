//! Specs and bases on disk.

use super::*;
use std::path::Path;

fn write(dir: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
}

fn load_problems(path: &Path) -> Vec<String> {
    let read = JobTree::load(path, &[]).and_then(|t| t.read(read_little));
    let d = read.expect_err("problems");
    d.problems().iter().map(|p| place_and_message(&d, p)).collect()
}

#[test]
fn merges_extends_chains_and_keeps_the_file_of_each_value() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "base/root.toml", "a = 1\nl = [{z = 1}, {z = 2}]\n[t]\nx = 0.1\ny = 'root'\n");
    write(dir.path(), "base/mid.toml", "extends = 'root.toml'\nl = [{z = 9}]\n[t]\nx = 0.2\n");
    let job = write(dir.path(), "job.toml", "extends = \"base/mid.toml\"\nt.y = 'job'\n");
    let (_, values) = JobTree::load(&job, &[]).unwrap().read(read_little).unwrap();
    let shown: Vec<String> = values.iter().map(|v| format!("{} = {}", v.key, v.value)).collect();
    assert_eq!(shown, ["a = 1", "t.x = 0.2", "t.y = \"job\"", "l.0.z = 9"]);
    let from = |i: usize| values[i].origin.to_string();
    assert_eq!(from(0), format!("base {}", dir.path().join("base/root.toml").display()));
    assert_eq!(from(1), format!("base {}", dir.path().join("base/mid.toml").display()));
    assert_eq!(from(2), "spec");
}

#[test]
fn shows_a_problem_of_a_base_in_the_base() {
    let dir = tempfile::tempdir().unwrap();
    let base = write(dir.path(), "base.toml", "a = 1\n\n[t]\nxx = 0.1\n");
    let job = write(dir.path(), "job.toml", "extends = 'base.toml'\nb = 1\n");
    let rendered = JobTree::load(&job, &[]).unwrap().read(read_little).expect_err("problems").to_string();
    let expected = format!(
        "error: 1 problem in {}\n  --> line 2, column 1\n    2 | b = 1\n      | ^ unknown key; known here: `a`, `l`, `t`\n\n\
         error: 1 problem in {}\n  --> line 4, column 1\n    4 | xx = 0.1\n      | ^^ unknown key; did you mean `x`?",
        job.display(),
        base.display()
    );
    assert_eq!(rendered, expected);
}

#[test]
fn reports_cycles_and_missing_bases_with_their_paths() {
    let dir = tempfile::tempdir().unwrap();
    let a = write(dir.path(), "a.toml", "aa = 1\nextends = 'b.toml'");
    let b = write(dir.path(), "b.toml", "extends = './a.toml'");
    let found = load_problems(&a);
    let back = dir.path().join("./a.toml");
    assert_eq!(found[0], format!("{}:1:1+2: unknown key; did you mean `a`?", a.display()));
    let (a, b) = (a.display(), b.display());
    assert_eq!(
        found[1],
        format!("{b}:1:11+10: a spec can't extend itself: {a} -> {b} -> {a}"),
        "{}",
        back.display()
    );
    let itself = write(dir.path(), "self.toml", "extends = 'self.toml'");
    let name = itself.display();
    assert_eq!(
        load_problems(&itself),
        [format!("{name}:1:11+11: a spec can't extend itself: {name} -> {name}")]
    );
    let lost = write(dir.path(), "lost.toml", "extends = 'gone.toml'\n");
    let found = load_problems(&lost);
    assert!(found[0].contains("lost.toml:1:11+11: ") && found[0].contains("gone.toml"), "{found:?}");
    let wrong = write(dir.path(), "wrong.toml", "extends = ['a.toml']\n");
    assert!(
        load_problems(&wrong)[0].ends_with("wrong.toml:1:11+10: expected the path of a spec, found a list")
    );
}

#[test]
fn an_unreadable_spec_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = JobTree::load(&dir.path().join("none.toml"), &[]).expect_err("missing").to_string();
    assert!(error.starts_with("error: 1 problem in ") && error.contains("cannot read the file: "), "{error}");
    let binary = dir.path().join("binary.toml");
    std::fs::write(&binary, b"a = \xff").unwrap();
    assert!(JobTree::load(&binary, &[]).expect_err("not text").to_string().contains("byte 5 is not UTF-8"));
}
