//! `--set` and `--unset`. More of their messages are snapshots of tests/cli/spec_messages.rs.

use super::*;

#[test]
fn overrides_name_keys_in_lists_and_in_quotes() {
    let text = "a = 1\nl = [{z = 1}]\n[t]\nx = 0.5";
    let edits = [set("l.0.z=0"), set("t . \"y\" = 'q'"), set("l.1.z=1"), set("a b=1"), set("t.y=[1,\n2")];
    assert_eq!(
        problems(text, &edits),
        [
            "--set:1:13+1: expected an integer of at least 1, found 0",
            "--set:1:9+1: `l` is a list of 1: its items are numbered from 0",
            "--set:1:7+3: not a key: parts are letters, digits, `-` and `_`, or quoted, joined by dots",
            "--set:2:2+0: unclosed array, expected `]`",
        ]
    );
    assert_eq!(
        problems("a = 1\nl = [{z = 1}, {z = 2}]", &[set("l.0={}"), unset("l.1")]),
        [
            "--set:1:7+1: `l` is a list of 2: name a key of one of its tables, or the whole list",
            "--unset:1:9+1: `l` is a list of 2: name a key of one of its tables, or the whole list",
        ]
    );
}

#[test]
fn a_table_that_is_alone_has_the_index_0() {
    let z = |text: &str| values(text, &[set("l.0.z=7")])[3..].to_vec();
    for text in ["", "[l]\nz = 1", "[[l]]\nz = 1"] {
        let key = if text.starts_with("[[") { "l.0.z" } else { "l.z" };
        assert_eq!(z(text), [format!("{key} = 7 (--set)")], "{text}");
    }
    assert_eq!(values("[l]\nz = 7", &[unset("l.0.z"), set("l.z=2")])[3..], ["l.z = 2 (--set)"]);
}

#[test]
fn reads_override_values_as_toml_and_bare_words_as_strings() {
    let text = |value: &str| {
        let tree = tree("", &[set(&format!("t.y={value}"))]);
        tree.read(|r| r.section("t").config::<T>().y).unwrap().0
    };
    assert_eq!(text("500 steps"), "500 steps");
    assert_eq!(text("\"a=b\""), "a=b");
    assert_eq!(text(" cuda:1 "), "cuda:1");
    assert_eq!(text("a=b"), "a=b");
    let edits = [set("t={x=0.25}"), set("t.y=Z"), set("l=[{z=3}]")];
    let (read, _) = tree("[t]\nx = 0.5\ny = 'Q'", &edits).read(read_little).unwrap();
    assert_eq!(read, (5, 0.25, "Z".to_owned(), vec![3]));
}

#[test]
fn unset_removes_only_the_named_key() {
    assert_eq!(values("a = 2\n[t]\nx = 0", &[unset("t")])[1..], values("", &[])[1..]);
    assert_eq!(values("l = [{z = 1}]\na = 1", &[unset("l"), unset("a")]), values("", &[]));
    assert_eq!(
        problems("a = 2\n[t]\nx = 0", &[unset("a=3"), unset("a.b")]),
        [
            "--unset:1:10+2: `--unset` takes a key alone; `--set` gives it a value",
            "--unset:1:9+1: `a` is 2, not a table",
        ]
    );
}

#[test]
fn extends_is_known_but_no_edit_changes_it() {
    assert_eq!(
        problems("extend = \"b.toml\"", &[]),
        ["job.toml:1:1+6: unknown key; did you mean `extends`?"]
    );
    assert_eq!(
        problems("t.extends = \"b.toml\"", &[]),
        ["job.toml:1:3+7: unknown key in `[t]`; `extends` belongs at the top, above the first table"]
    );
    let why = "`extends` is read before the edits of the command line: they can't change it";
    assert_eq!(
        problems("", &[set("extends=b.toml"), unset("extends")]),
        [format!("--set:1:7+7: {why}"), format!("--unset:1:9+7: {why}")]
    );
}

#[test]
fn an_edit_that_is_none_is_a_bad_command_line() {
    use base::error::{Error, ErrorKind};
    let code = |text: &str, edits: &[Override]| {
        let problems = tree(text, edits).read(read_little).map(|_| ()).expect_err("problems");
        Error::from(problems).kind
    };
    for edit in [set("seed"), set("=1"), set("a b=1"), set("a="), unset("a=1")] {
        assert_eq!(code("", std::slice::from_ref(&edit)), ErrorKind::Usage, "{edit:?}");
        assert_eq!(code("a = 0", &[edit]), ErrorKind::Spec, "the spec is wrong, too");
    }
    assert_eq!(code("", &[set("a=0")]), ErrorKind::Spec);
}
