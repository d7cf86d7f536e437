//! An editor's side of the protocol.

use crate::common::{HUNG, ddp_run, finish};
use serde_json::{Value as Json, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A client with one server.
pub struct Client {
    server: Child,
    /// Dropped, it is the end of the server's input.
    pub stdin: Option<ChildStdin>,
    messages: Receiver<Json>,
    /// Messages that were not asked for yet.
    kept: Vec<Json>,
    next: i64,
}

fn read(from: &mut impl BufRead) -> Option<Json> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().expect("a length");
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body).ok()?;
    Some(serde_json::from_slice(&body).expect("JSON"))
}

impl Client {
    pub fn start(flags: &[&str]) -> Self {
        let mut command = ddp_run();
        command.arg("lsp").args(flags).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut server = command.spawn().expect("it starts");
        let (stdin, stdout) = (server.stdin.take(), server.stdout.take().expect("a pipe"));
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Some(message) = read(&mut stdout) {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Self { server, stdin, messages, kept: Vec::new(), next: 1 }
    }

    /// A server that is ready, and what it says about itself.
    pub fn ready(flags: &[&str], capabilities: Json) -> (Self, Json) {
        let mut client = Self::start(flags);
        let params = json!({ "processId": null, "rootUri": null, "capabilities": capabilities });
        let about = client.request("initialize", params)["result"].clone();
        client.notify("initialized", json!({}));
        (client, about)
    }

    fn send(&mut self, message: &Json) {
        let body = message.to_string();
        let stdin = self.stdin.as_mut().expect("it is open");
        write!(stdin, "Content-Length: {}\r\n\r\n{body}", body.len()).expect("the server reads");
        stdin.flush().expect("the server reads");
    }

    pub fn notify(&mut self, method: &str, params: Json) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// The first message that `fits`.
    #[track_caller]
    fn wait(&mut self, what: &str, fits: impl Fn(&Json) -> bool) -> Json {
        if let Some(at) = self.kept.iter().position(&fits) {
            return self.kept.remove(at);
        }
        loop {
            let message = self.messages.recv_timeout(HUNG);
            let message = message.unwrap_or_else(|e| panic!("no {what}: {e}; kept: {:?}", self.kept));
            if fits(&message) {
                return message;
            }
            self.kept.push(message);
        }
    }

    #[track_caller]
    pub fn request(&mut self, method: &str, params: Json) -> Json {
        let id = self.next;
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.wait(method, |message| message["id"] == id)
    }

    pub fn open(&mut self, uri: &str, text: &str) {
        let document = json!({ "uri": uri, "languageId": "toml", "version": 1, "text": text });
        self.notify("textDocument/didOpen", json!({ "textDocument": document }));
    }

    pub fn change(&mut self, uri: &str, version: i64, text: &str) {
        let document = json!({ "uri": uri, "version": version });
        let changes = json!([{ "text": text }]);
        self.notify("textDocument/didChange", json!({ "textDocument": document, "contentChanges": changes }));
    }

    /// The problems of this version of a document.
    #[track_caller]
    pub fn problems(&mut self, uri: &str, version: i64) -> Vec<Json> {
        let fits = |message: &Json| {
            message["method"] == "textDocument/publishDiagnostics"
                && message["params"]["uri"] == uri
                && message["params"]["version"] == version
        };
        self.wait("diagnostics", fits)["params"]["diagnostics"].as_array().expect("a list").clone()
    }

    #[track_caller]
    pub fn at(&mut self, method: &str, uri: &str, line: usize, character: usize) -> Json {
        let position = json!({ "line": line, "character": character });
        let params = json!({ "textDocument": { "uri": uri }, "position": position });
        self.request(method, params)["result"].clone()
    }

    #[track_caller]
    pub fn hover(&mut self, uri: &str, line: usize, character: usize) -> String {
        let hover = self.at("textDocument/hover", uri, line, character);
        hover["contents"]["value"].as_str().unwrap_or_default().to_owned()
    }

    /// Ends the server as the protocol says.
    #[track_caller]
    pub fn end(mut self) {
        assert_eq!(self.request("shutdown", Json::Null)["result"], Json::Null);
        self.notify("exit", Json::Null);
        self.ended(0);
    }

    #[track_caller]
    pub fn ended(mut self, code: i32) {
        // A server that waits for the pipe's end, too.
        let stdin = self.stdin.take();
        let output = finish(self.server);
        drop(stdin);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!((output.status.code(), said.as_str()), (Some(code), ""));
    }
}
