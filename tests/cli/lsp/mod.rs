//! `ddp-run lsp` as an editor uses it: a scripted client over the pipes of the real program.

mod client;

use crate::common::*;
use client::Client;
use serde_json::{Value as Json, json};
use std::path::Path;

const BASE: &str = "batch_size = 8\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\n[optimizer]\nname = \"adamw\"\nlr = 0.25\n";

fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}

fn range(line: usize, from: usize, to: usize) -> Json {
    json!({ "start": { "line": line, "character": from }, "end": { "line": line, "character": to } })
}

/// Line, range and message of what `ddp-run check` says about a file, without its hints.
fn checked(spec: &Path) -> String {
    stderr(&output_of(ddp_run().arg("check").arg(spec)))
}

#[test]
fn problems_come_with_ranges_and_go() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("job.toml");
    let text = format!("name = \"a\"\nbatchsize = 4\n{}", BASE.replace("\"linear\"", "\"linera\""));
    let text = text.replace("batch_size = 8\n", "");
    std::fs::write(&path, &text).expect("written");
    let (mut client, about) = Client::ready(&[], json!({}));
    assert_eq!(about["capabilities"]["positionEncoding"], "utf-16");
    assert_eq!(about["capabilities"]["textDocumentSync"]["change"], 1);
    let uri = uri(&path);
    client.open(&uri, &text);
    let problems = client.problems(&uri, 1);
    let shown: Vec<(&Json, &str, &str)> = problems
        .iter()
        .map(|p| (&p["range"], p["code"].as_str().expect("a code"), p["message"].as_str().expect("a text")))
        .collect();
    let expected = [
        (&range(1, 0, 9), "unknown-key", "unknown key; did you mean `batch_size`?"),
        (&range(3, 7, 15), "value", "unknown value; did you mean \"linear\"?"),
    ];
    assert_eq!(shown, expected);
    let said = checked(&path);
    assert!(said.starts_with("error: 2 problems"), "{said}");
    for (range, _, message) in shown {
        let place = format!(
            "line {}, column {}",
            range["start"]["line"].as_i64().expect("a line") + 1,
            range["start"]["character"].as_i64().expect("a column") + 1
        );
        assert!(said.contains(&place) && said.contains(message), "{place} {message}\n{said}");
    }

    // What was meant is a quick fix.
    let params =
        json!({ "textDocument": { "uri": uri }, "range": range(1, 2, 2), "context": { "diagnostics": [] } });
    let fixes = client.request("textDocument/codeAction", params)["result"].clone();
    let edits = json!([{ "range": range(1, 0, 9), "newText": "batch_size" }]);
    assert_eq!(fixes[0]["edit"]["changes"][&uri], edits, "{fixes}");
    assert_eq!(fixes.as_array().map(Vec::len), Some(1));

    client.change(&uri, 2, &text.replace("batchsize", "batch_size").replace("linera", "linear"));
    assert_eq!(client.problems(&uri, 2), Vec::<Json>::new());
    client.end();
}

#[test]
fn extends_is_read_from_open_documents() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().canonicalize().expect("its path");
    let (base, job) = (folder.join("base.toml"), folder.join("job.toml"));
    std::fs::write(&base, BASE).expect("written");
    let text = "extends = \"base.toml\"\nname = \"a\"\n[optimizer]\nweight_decay = 0.5\n";
    let (mut client, _) = Client::ready(&[], json!({}));
    let (base, job) = (uri(&base), uri(&job));
    // The spec itself is in no file yet.
    client.open(&job, text);
    assert_eq!(client.problems(&job, 1), Vec::<Json>::new());
    let hover = client.hover(&job, 3, 3);
    assert!(hover.contains("**optimizer.weight_decay**: float"), "{hover}");
    assert!(hover.contains("Value: `0.5`, set in this file"), "{hover}");
    let hover = client.hover(&job, 2, 3);
    assert!(hover.contains("`lr = 0.25`: set in base.toml, line 8"), "{hover}");
    assert!(hover.contains("the default"), "{hover}");

    let place = client.at("textDocument/definition", &job, 0, 14);
    assert_eq!((&place["uri"], &place["range"]["start"]["line"]), (&json!(base), &json!(0)));
    assert_eq!(client.at("textDocument/definition", &job, 1, 8), Json::Null);

    // An unsaved base: its problems are shown in it, and at `extends`.
    client.open(&base, &BASE.replace("lr = 0.25", "lr = -1"));
    let at_extends = client.problems(&job, 1);
    assert_eq!(at_extends.len(), 1, "{at_extends:?}");
    assert_eq!(at_extends[0]["range"], range(0, 10, 21));
    let message = at_extends[0]["message"].as_str().expect("a text");
    assert!(message.starts_with("base.toml, line 8: expected a number"), "{message}");
    let there = &at_extends[0]["relatedInformation"][0]["location"];
    assert_eq!((&there["uri"], &there["range"]), (&json!(base), &range(7, 5, 7)));
    let in_base = client.problems(&base, 1);
    assert!(in_base.iter().any(|p| p["range"] == range(7, 5, 7)), "{in_base:?}");
    client.change(&base, 2, BASE);
    assert_eq!(client.problems(&job, 1), Vec::<Json>::new());
    client.end();
}

#[test]
fn completion_goes_on_while_something_is_typed() {
    let (mut client, _) = Client::ready(&[], json!({}));
    let uri = "untitled:Untitled-1";
    client.open(uri, "[optimizer]\nname = \"adamw\"\nlr = \n\nbet");
    let labels = |items: Json| -> Vec<String> {
        let items = items.as_array().cloned().unwrap_or_default();
        items.iter().filter_map(|item| Some(item["label"].as_str()?.to_owned())).collect()
    };
    let items = client.at("textDocument/completion", uri, 4, 3);
    let betas = items.as_array().expect("items").iter().find(|item| item["label"] == "betas");
    let betas = betas.expect("a key of AdamW");
    assert_eq!(betas["textEdit"], json!({ "range": range(4, 0, 3), "newText": "betas = " }));
    assert!(betas["detail"].as_str().is_some_and(|facts| facts.starts_with("list of 2 floats")), "{betas}");
    let keys = labels(items);
    assert!(!keys.iter().any(|key| key == "lr" || key == "momentum"), "{keys:?}");
    let names = labels(client.at("textDocument/completion", uri, 1, 8));
    assert!(names.contains(&"sgd".to_owned()), "{names:?}");
    client.end();
}

#[test]
fn columns_count_what_the_client_counts() {
    // Behind é (one unit in UTF-16, two bytes) and 😀 (two units, four bytes).
    let inline = "name = \"a\"\nbatch_size = 8\nmodel.name = \"linear\"\ndataset.name = \"random\"\noptimizer = { \"é😀\" = 1, name = \"adamw\", lrr = 0.5 }\n";
    for (encodings, expected) in
        [(json!(["utf-16"]), range(4, 41, 44)), (json!(["utf-16", "utf-8"]), range(4, 44, 47))]
    {
        let (mut client, about) =
            Client::ready(&[], json!({ "general": { "positionEncodings": encodings } }));
        let named = about["capabilities"]["positionEncoding"].as_str().expect("a name").to_owned();
        assert_eq!(named == "utf-8", encodings.as_array().expect("a list").len() == 2);
        let uri = "untitled:1";
        client.open(uri, inline);
        let problems = client.problems(uri, 1);
        let unknown = problems.iter().find(|p| p["message"] == "unknown key; did you mean `lr`?");
        assert_eq!(unknown.expect("a problem")["range"], expected, "{named}: {problems:?}");
        let column = expected["start"]["character"].as_u64().expect("a column") as usize;
        let hover = client.at("textDocument/hover", uri, 4, column - 15);
        assert_eq!(
            hover["range"]["start"]["character"].as_u64(),
            Some(column as u64 - 16),
            "{named}: {hover}"
        );
        client.end();
    }
}

#[test]
fn the_protocol_is_kept() {
    let mut client = Client::start(&["--stdio"]);
    let early = client.request("textDocument/hover", json!({}));
    assert_eq!(early["error"]["code"], -32002, "{early}");
    client.request("initialize", json!({ "processId": null, "rootUri": null, "capabilities": {} }));
    client.notify("initialized", json!({}));
    client.notify("$/setTrace", json!({ "value": "off" }));
    assert_eq!(client.request("textDocument/rename", json!({}))["error"]["code"], -32601);
    assert_eq!(client.request("textDocument/hover", json!({ "x": 1 }))["error"]["code"], -32602);
    client.end();

    // An end that was not announced.
    let (mut client, _) = Client::ready(&[], json!({}));
    client.notify("exit", Json::Null);
    client.ended(1);
    let (mut client, _) = Client::ready(&[], json!({}));
    drop(client.stdin.take());
    client.ended(1);
    let (mut client, _) = Client::ready(&[], json!({}));
    assert_eq!(client.request("shutdown", Json::Null)["result"], Json::Null);
    assert_eq!(client.request("textDocument/hover", json!({}))["error"]["code"], -32600);
    drop(client.stdin.take());
    client.ended(0);
}
