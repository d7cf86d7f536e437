//! Specs and bases on disk. Their messages are snapshots of tests/cli/spec_messages.rs.

use super::*;
use std::path::Path;

fn write(dir: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = dir.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    path
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

/// Nobody writes to the pipe: a read would wait.
#[test]
fn a_pipe_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |path: &Path| {
        let read = JobTree::load(path, &[]).and_then(|tree| tree.read(read_little));
        read.expect_err("a pipe").to_string()
    };
    let message = refused(&base::testing::pipe(dir.path()).unwrap());
    assert!(message.contains("it is no regular file (a named pipe, for example)"), "{message}");
    let message = refused(&write(dir.path(), "job.toml", "extends = 'pipe'\n"));
    assert!(message.contains("not a file"), "{message}");
}

#[test]
fn reports_a_cycle_through_any_path_with_all_other_problems() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "job.toml", "aa = 1\nextends = './job.toml'");
    let read = JobTree::load(&path, &[]).and_then(|t| t.read(read_little));
    let d = read.expect_err("problems");
    let found: Vec<String> = d.problems().iter().map(|p| place_and_message(&d, p)).collect();
    let name = path.display();
    let expected = [
        format!("{name}:1:1+2: unknown key; did you mean `a`?"),
        format!("{name}:2:11+12: a spec can't extend itself: {name} -> {name}"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_spec_that_is_not_text_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("binary.toml");
    std::fs::write(&binary, b"a = \xff").unwrap();
    assert!(JobTree::load(&binary, &[]).expect_err("not text").to_string().contains("byte 5 is not UTF-8"));
}

/// Reading it would wait for a writer.
#[test]
fn a_base_that_is_a_pipe_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("base.toml")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let path = write(dir.path(), "job.toml", "extends = 'base.toml'");
    let problems = JobTree::load(&path, &[]).and_then(|t| t.read(read_little)).expect_err("no text");
    assert!(problems.to_string().contains("not a file"), "{problems}");
}

#[test]
fn a_file_that_is_not_there_has_one_identity() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("sub")).unwrap();
    let of = |path: &str| identify(&dir.path().join(path));
    assert_eq!(of("sub/../no.toml"), of("no.toml"));
    assert_ne!(of("sub/no.toml"), of("no.toml"));
}
