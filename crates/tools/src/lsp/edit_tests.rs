//! Several documents, addresses, and the edits of the server's command line.

use super::document::unquoted;
use super::server::Server;
use super::tests::{GOOD, URI, asked, changed, note, opened, published, server};
use super::text::Columns;
use job::registry::Registry;
use serde_json::{Value as Json, json};
use spec::Override;
use std::path::Path;

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

/// A folder with its canonical path.
fn folder() -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().canonicalize().expect("its path");
    (folder, path)
}

/// What is shown for a document now.
fn shown(server: &mut Server, uri: &str) -> Vec<Json> {
    published(server);
    serde_json::to_value(&server.shown[uri]).expect("JSON").as_array().expect("a list").clone()
}

fn messages(problems: &[Json]) -> Vec<&str> {
    problems.iter().map(|problem| problem["message"].as_str().expect("a text")).collect()
}

fn fixes(server: &mut Server, uri: &str) -> Json {
    let range = json!({ "start": { "line": 0, "character": 0 }, "end": { "line": 99, "character": 0 } });
    let params = json!({ "textDocument": { "uri": uri }, "range": range, "context": { "diagnostics": [] } });
    asked(server, "textDocument/codeAction", params)
}

#[test]
fn fixes_are_those_of_the_text_of_now() {
    let mut server = server();
    let wrong = GOOD.replace("batch_size", "batchsize");
    opened(&mut server, URI, &wrong);
    published(&mut server);
    changed(&mut server, &format!("# one line more\n{wrong}"));
    let fixes = fixes(&mut server, URI);
    let edit = &fixes[0]["edit"]["changes"][URI][0];
    assert_eq!(
        (&edit["range"]["start"]["line"], &edit["newText"]),
        (&json!(2), &json!("batch_size")),
        "{fixes}"
    );
    assert_eq!(fixes.as_array().map(Vec::len), Some(1));
}

#[test]
fn a_base_counts_before_it_is_saved() {
    let (_folder, path) = folder();
    std::fs::create_dir(path.join("sub")).expect("made");
    let (base, beside, below) = (path.join("nb.toml"), path.join("a.toml"), path.join("sub/b.toml"));
    let (base, beside, below) = (uri(&base), uri(&beside), uri(&below));
    let mut server = server();
    opened(&mut server, &beside, "extends = \"nb.toml\"\n");
    opened(&mut server, &below, "extends = \"../nb.toml\"\n");
    let definition = |server: &mut Server, uri: &str| {
        let at = json!({ "textDocument": { "uri": uri }, "position": { "line": 0, "character": 12 } });
        asked(server, "textDocument/definition", at)
    };
    for job in [&beside, &below] {
        let problems = shown(&mut server, job);
        assert!(messages(&problems).iter().any(|m| m.contains("cannot read the file")), "{problems:?}");
        assert_eq!(definition(&mut server, job), Json::Null);
    }
    opened(&mut server, &base, GOOD);
    for job in [&beside, &below] {
        assert_eq!(shown(&mut server, job), Vec::<Json>::new(), "{job}");
        assert_eq!(definition(&mut server, job)["uri"], json!(base));
    }
    note(&mut server, "textDocument/didClose", json!({ "textDocument": { "uri": base } }));
    assert!(!shown(&mut server, &beside).is_empty());
}

#[test]
fn a_part_of_a_spec_lacks_nothing_while_what_extends_it_is_open() {
    let (_folder, path) = folder();
    let (base, job) = (uri(&path.join("base.toml")), uri(&path.join("job.toml")));
    let (part, rest) = GOOD.split_at(GOOD.find("[optimizer]").expect("a table"));
    let mut server = server();
    opened(&mut server, &base, &format!("sede = 1\n{rest}"));
    assert!(shown(&mut server, &base).len() > 1);
    opened(&mut server, &job, &format!("extends = \"base.toml\"\n{part}"));
    let problems = shown(&mut server, &base);
    assert_eq!(messages(&problems), ["unknown key; did you mean `seed`?"]);
    note(&mut server, "textDocument/didClose", json!({ "textDocument": { "uri": job } }));
    assert!(shown(&mut server, &base).len() > 1);
}

#[test]
fn files_that_extend_each_other_are_told_once() {
    let (_folder, path) = folder();
    let (a, b) = (uri(&path.join("a.toml")), uri(&path.join("b.toml")));
    let mut server = server();
    opened(&mut server, &a, "extends = \"b.toml\"\n");
    opened(&mut server, &b, "extends = \"a.toml\"\n");
    for uri in [&a, &b] {
        let problems = shown(&mut server, uri);
        let cycles = messages(&problems).iter().filter(|m| m.contains("can't extend itself")).count();
        assert_eq!(cycles, 1, "{problems:?}");
    }
}

#[test]
fn edits_that_do_not_fit_a_spec_are_not_applied_to_it() {
    let edits = ["dataset.root=/data", "optimizer.lr=0.5"].map(|set| Override::Set(set.to_owned()));
    let edits = [Override::Unset("scheduler".to_owned())].into_iter().chain(edits).collect();
    let mut server = Server::new(&Registry::standard(), edits, Columns::Utf16);
    opened(&mut server, URI, GOOD);
    let problems = shown(&mut server, URI);
    assert!(problems.iter().all(|problem| problem["severity"] == 3), "{problems:?}");
    let all = messages(&problems).join("\n");
    for part in ["--set dataset.root=/data: unknown key", "--unset scheduler: nothing to unset"] {
        assert!(all.contains(part), "{all}");
    }
    assert_eq!(fixes(&mut server, URI), json!([]), "there is nothing to replace in this text");
    let at = json!({ "textDocument": { "uri": URI }, "position": { "line": 6, "character": 2 } });
    let hover = asked(&mut server, "textDocument/hover", at);
    assert!(hover.to_string().contains("`lr = 0.5`: set on the command line"), "{hover}");
    // Where they fit, they apply.
    let mnist = GOOD.replace("\"random\"", "\"mnist\"") + "[scheduler]\nname = \"cosine\"\n";
    changed(&mut server, &mnist);
    let problems = shown(&mut server, URI);
    assert!(problems.iter().all(|problem| problem["severity"] != 3), "{problems:?}");
}

#[test]
fn an_address_with_brackets_and_blanks_is_answered_as_it_is_written() {
    let mut server = server();
    let uri = "file:///nowhere/my [1] ü.toml";
    opened(&mut server, uri, &GOOD.replace("batch_size", "batchsize"));
    let shown = published(&mut server);
    assert_eq!((shown.len(), shown[0].0.as_str(), shown[0].1.len()), (1, uri, 1), "{shown:?}");
    let fixes = fixes(&mut server, uri);
    assert!(fixes[0]["edit"]["changes"][uri].is_array(), "{fixes}");
}

#[test]
fn strings_are_read_as_toml_reads_them() {
    for (text, expected) in [
        ("\"a\\u002eb\"", "a.b"),
        ("'a\\b'", "a\\b"),
        ("\"a \\\"b\\\"\"", "a \"b\""),
        (" \"open", "open"),
        ("adamw", "adamw"),
        ("", ""),
    ] {
        assert_eq!(unquoted(text), expected, "{text}");
    }
}
