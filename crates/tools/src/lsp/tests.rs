//! The server without a pipe. tests/cli/lsp speaks with the real one.

use super::server::Server;
use super::text::Columns;
use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use job::registry::Registry;
use lsp_server::{Message, Notification, Request, RequestId};
use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use spec::Override;
use train::models::{Input, Net};

pub(super) const GOOD: &str = "name = \"a\"\nbatch_size = 8\n[model]\nname = \"linear\"\n[dataset]\nname = \"random\"\n[optimizer]\nname = \"adamw\"\n";
pub(super) const URI: &str = "file:///nowhere/job.toml";

pub(super) fn server() -> Server {
    Server::new(&Registry::standard(), Vec::new(), Columns::Utf16)
}

pub(super) fn opened(server: &mut Server, uri: &str, text: &str) {
    let document = json!({ "uri": uri, "languageId": "toml", "version": 1, "text": text });
    note(server, "textDocument/didOpen", json!({ "textDocument": document }));
}

pub(super) fn note(server: &mut Server, method: &str, params: Json) {
    server.note(Notification::new(method.to_owned(), params));
}

pub(super) fn changed(server: &mut Server, text: &str) {
    let change =
        json!({ "textDocument": { "uri": URI, "version": 2 }, "contentChanges": [{ "text": text }] });
    note(server, "textDocument/didChange", change);
}

pub(super) fn asked(server: &mut Server, method: &str, params: Json) -> Json {
    let request = Request { id: RequestId::from(1), method: method.to_owned(), params };
    let response = server.answer(request);
    response.response_result.unwrap_or_else(|error| panic!("{method}: {error:?}"))
}

/// The answers to all requests at a byte offset of the text.
fn all(server: &mut Server, text: &str, offset: usize) -> Vec<Json> {
    let position = super::text::Text::new(text).position(offset, Columns::Utf16);
    let at = json!({ "textDocument": { "uri": URI }, "position": position });
    let methods = ["textDocument/hover", "textDocument/completion", "textDocument/definition"];
    let mut answers: Vec<Json> =
        methods.into_iter().map(|method| asked(server, method, at.clone())).collect();
    let range = json!({ "start": { "line": 0, "character": 0 }, "end": position });
    let fixes = json!({ "textDocument": { "uri": URI }, "range": range, "context": { "diagnostics": [] } });
    answers.push(asked(server, "textDocument/codeAction", fixes));
    answers
}

/// Opens a text with a `|`, and returns hover and labels of completions there.
fn at_cursor(server: &mut Server, text: &str) -> (String, Vec<String>) {
    let offset = text.find('|').expect("a cursor");
    let text = text.replacen('|', "", 1);
    opened(server, URI, &text);
    let answers = all(server, &text, offset);
    let hover = answers[0]["contents"]["value"].as_str().unwrap_or_default().to_owned();
    let labels = answers[1].as_array().into_iter().flatten();
    (hover, labels.map(|item| item["label"].as_str().expect("a label").to_owned()).collect())
}

/// The problems that are shown, by address.
pub(super) fn published(server: &mut Server) -> Vec<(String, Vec<Json>)> {
    let of = |message| match message {
        Message::Notification(note) => {
            let problems = note.params["diagnostics"].as_array().expect("a list").clone();
            (note.params["uri"].as_str().expect("an address").to_owned(), problems)
        }
        other => panic!("{other:?}"),
    };
    server.publish().into_iter().map(of).collect()
}

#[test]
fn completion_knows_the_table_and_its_component() {
    let mut server = server();
    let (_, keys) = at_cursor(&mut server, &format!("{GOOD}lr = 0.1\nb|"));
    assert!(keys.contains(&"betas".to_owned()), "{keys:?}");
    assert!(!keys.contains(&"lr".to_owned()), "it is set: {keys:?}");
    assert!(!keys.contains(&"momentum".to_owned()), "that is SGD's: {keys:?}");
    for (text, expected) in [
        ("[|", "optimizer"),
        ("[optimizer]\nname = |", "adamw"),
        ("[optimizer]\nname = \"a|\"", "adamw"),
        ("|", "[early_stop]"),
        ("|", "extends"),
        ("optimizer.|", "name"),
        ("optimizer = { | }", "name"),
        ("[launch]\nshare_devices = |", "true"),
        ("[train]\nloss = \"|", "cross-entropy"),
        ("[distributed]\ncomm_hook = |", "bf16"),
        ("[optimizer]\nname = \"sgd\"\n[[optimizer.group]]\n|", "momentum"),
        ("[optimizer]\nname = \"sgd\"\n[[optimizer.group]]\n|", "match"),
        ("[[scheduler]]\nname = \"warmup\"\n[[scheduler]]\nname = \"step\"\n|", "step_size"),
        // An unclosed list hides nothing that follows.
        ("[optimizer]\nname = \"adamw\"\nbetas = [0.9,\n|", "eps"),
    ] {
        let (_, found) = at_cursor(&mut server, text);
        assert!(found.contains(&expected.to_owned()), "{text}: {found:?}");
    }
    let (_, nothing) = at_cursor(&mut server, "# a |comment");
    assert!(nothing.is_empty(), "{nothing:?}");
}

#[test]
fn headers_that_the_text_may_have_are_offered() {
    let mut server = server();
    for (text, expected) in [
        ("|", ["[scheduler]", "[[scheduler]]"].as_slice()),
        ("[scheduler]\nname = \"step\"\n|", &[]),
        ("[[scheduler]]\nname = \"step\"\n|", &["[[scheduler]]"]),
        ("scheduler = { name = \"step\" }\n|", &[]),
        ("[scheduler]\n[sche|]", &[]),
        ("[sche|]", &["scheduler"]),
        ("[[scheduler]]\n[[sche|]]", &["scheduler"]),
        ("[[scheduler]]\n[sche|]", &[]),
        ("[scheduler]\n[[sche|]]", &[]),
    ] {
        let (_, found) = at_cursor(&mut server, text);
        let found: Vec<&String> = found.iter().filter(|label| label.contains("scheduler")).collect();
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn a_key_that_is_written_as_tables_comes_last() {
    let mut server = server();
    let (_, keys) = at_cursor(&mut server, &format!("{GOOD}|"));
    let of_the_table: Vec<&String> = keys.iter().filter(|label| !label.starts_with('[')).collect();
    assert_eq!((of_the_table[0].as_str(), of_the_table[of_the_table.len() - 1].as_str()), ("lr", "group"));
}

#[test]
fn a_choice_replaces_the_whole_word() {
    let mut server = server();
    let text = "[optimizer]\nname = \"ü\"\n";
    opened(&mut server, URI, text);
    let answers = all(&mut server, text, text.find('ü').expect("it is there"));
    let items = answers[1].as_array().expect("items");
    let adamw = items.iter().find(|item| item["label"] == "adamw").expect("an optimizer");
    assert_eq!(adamw["textEdit"]["newText"], "\"adamw\"");
    let range = json!({ "start": { "line": 1, "character": 7 }, "end": { "line": 1, "character": 10 } });
    assert_eq!(adamw["textEdit"]["range"], range);
}

#[test]
fn hover_tells_facts_value_and_origin() {
    let mut server = server();
    for (text, parts) in [
        (format!("{GOOD}l|r = 0.25\n"), vec!["**optimizer.lr**: float", "Value: `0.25`, set in this file"]),
        (GOOD.replace("[optimizer]", "[opti|mizer]"), vec!["**[optimizer]** name = \"adamw\"", "`lr = "]),
        (GOOD.replace("\"adamw\"", "\"ad|amw\""), vec!["name = \"adamw\"", "`betas`: list of 2 floats"]),
        (GOOD.replace("batch_size", "batch|_size"), vec!["**batch_size**: integer; 1 to 2^30"]),
        // Another line is wrong; the value can still be shown.
        (format!("{GOOD}lr = 0.25|\nx y z\n"), vec!["Value: `0.25`, set in this file"]),
    ] {
        let (hover, _) = at_cursor(&mut server, &text);
        for part in parts {
            assert!(hover.contains(part), "{text}\n{part} is not in:\n{hover}");
        }
    }
    let (hover, _) = at_cursor(&mut server, &format!("{GOOD}[metrics]\nlog_|every\n"));
    assert!(hover.contains("**metrics.log_every**"), "{hover}");
}

#[test]
fn values_of_the_last_good_text_are_kept() {
    let mut server = server();
    let (hover, _) = at_cursor(&mut server, &format!("{GOOD}lr = 0.2|5\n"));
    assert!(hover.contains("set in this file"), "{hover}");
    let torn = format!("x = \"\"\"\n{GOOD}lr = 0.25\n");
    changed(&mut server, &torn);
    let offset = torn.find("lr =").expect("a key");
    let answers = all(&mut server, &torn, offset);
    let hover = answers[0]["contents"]["value"].as_str().expect("a hover");
    assert!(hover.contains("Value before the present problems: `0.25`"), "{hover}");
}

#[test]
fn edits_of_the_command_line_are_told() {
    let edits = vec![Override::Set("optimizer.lr=0.5".to_owned()), Override::Set("sede=1".to_owned())];
    let mut server = Server::new(&Registry::standard(), edits, Columns::Utf16);
    let (hover, _) = at_cursor(&mut server, &format!("{GOOD}l|r = 0.25\n"));
    assert!(hover.contains("Value: `0.5`, set on the command line of the server"), "{hover}");
    let problems = &published(&mut server)[0].1;
    assert_eq!(problems.len(), 1, "{problems:?}");
    let message = problems[0]["message"].as_str().expect("a message");
    assert!(message.starts_with("--set sede=1: unknown key; did you mean `seed`?"), "{message}");
}

#[test]
fn files_of_other_programs_have_no_problems() {
    let mut server = server();
    for (uri, text) in
        [("file:///nowhere/Cargo.toml", "x = 1"), (URI, "[package]\nname = \"x\"\n"), (URI, "[tool.ruff]\n")]
    {
        opened(&mut server, uri, text);
        let shown = published(&mut server);
        assert!(shown.iter().all(|(_, problems)| problems.is_empty()), "{uri} {text}: {shown:?}");
    }
}

#[test]
fn a_closed_document_has_no_problems() {
    let mut server = server();
    opened(&mut server, URI, "x = 1");
    assert!(!published(&mut server)[0].1.is_empty());
    note(&mut server, "textDocument/didClose", json!({ "textDocument": { "uri": URI } }));
    assert_eq!(published(&mut server), [(URI.to_owned(), Vec::new())]);
    assert!(published(&mut server).is_empty());
}

#[test]
fn unknown_messages_have_their_errors() {
    let mut server = server();
    let mut code = |method: &str, params: Json| {
        let request = Request { id: RequestId::from(1), method: method.to_owned(), params };
        server.answer(request).response_result.err().map(|error| error.code)
    };
    assert_eq!(code("textDocument/rename", json!({})), Some(-32601));
    assert_eq!(code("textDocument/hover", json!({ "x": 1 })), Some(-32602));
    let nowhere =
        json!({ "textDocument": { "uri": "file:///other.toml" }, "position": { "line": 0, "character": 0 } });
    assert_eq!(code("textDocument/hover", nowhere.clone()), None);
    assert_eq!(code("shutdown", Json::Null), None);
    assert_eq!(code("textDocument/hover", nowhere), Some(-32600));
}

#[derive(Deserialize, JsonSchema)]
struct FussyConfig {
    /// How many.
    width: usize,
}

#[derive(Module, Debug)]
struct Fussy {
    weight: Param<Tensor<2>>,
}

impl Net for Fussy {
    fn forward(&self, input: Input) -> Tensor<2> {
        input.rows().matmul(self.weight.val())
    }
}

#[test]
fn a_users_component_may_panic() {
    let registry = Registry::standard().model("fussy", |c: &FussyConfig, _, device: &Device| {
        assert!(c.width != 13, "not 13");
        Fussy { weight: Param::from_tensor(Tensor::zeros([2, c.width], device)) }
    });
    let mut server = Server::new(&registry, Vec::new(), Columns::Utf16);
    let spec = GOOD.replace("\"linear\"", "\"fussy\"\nwid|th = 13");
    let (hover, _) = at_cursor(&mut server, &spec);
    assert!(hover.contains("**model.width**: integer"), "{hover}");
    assert_eq!(published(&mut server).len(), 1, "whatever it says, the server continues");
}

/// Every text has all its answers.
fn survives(server: &mut Server, text: &str, offsets: &[usize]) {
    changed(server, text);
    for offset in offsets {
        assert_eq!(all(server, text, *offset).len(), 4);
    }
    assert_eq!(published(server).len(), 1);
}

#[test]
fn every_beginning_of_a_spec_is_survived() {
    let mut server = server();
    opened(&mut server, URI, "");
    let text = include_str!("../../../../configs/cifar-93.toml");
    for (end, _) in text.char_indices() {
        survives(&mut server, &text[..end], &[end]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_edits_are_survived(
        edits in proptest::collection::vec((0usize..2000, 0usize..40, "[\\[\\]{}=.,\"'#\n\r \ta-z0-9é😀_-]{0,12}"), 1..8),
        cursor in 0usize..2000,
    ) {
        let mut server = server();
        opened(&mut server, URI, "");
        let mut text = format!("{GOOD}betas = [0.9, 0.99]\n[[scheduler]]\nname = \"step\"\n[dataset.x]\n");
        for (at, length, new) in edits {
            let at = text.floor_char_boundary(at % (text.len() + 1));
            let end = text.floor_char_boundary((at + length).min(text.len())).max(at);
            text.replace_range(at..end, &new);
            let cursor = text.floor_char_boundary(cursor % (text.len() + 1));
            survives(&mut server, &text, &[at, cursor, text.len()]);
        }
    }
}
