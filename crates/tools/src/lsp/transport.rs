//! Messages on standard input and output. lsp-server's own reader ends at a message that it can't read, and takes the client's
//! word for a message's length; here the client gets an error, and the next message is read.

use lsp_server::{Connection, ErrorCode, Message};
use serde_json::{Value as Json, json};
use std::io::{self, BufRead, Read, Write};
use std::thread::JoinHandle;

/// A longer message is none: a spec has a few thousand bytes.
const MAX_BYTES: u64 = 64 << 20;
/// Maximum length of a line of a message's head.
const MAX_HEADER: u64 = 4096;

/// The threads that read and write.
pub struct Threads {
    reader: JoinHandle<io::Result<()>>,
    writer: JoinHandle<io::Result<()>>,
}

impl Threads {
    /// Waits for their ends: everything sent is written then.
    ///
    /// # Errors
    /// The input does not consist of messages, or the output can't be written.
    pub fn join(self) -> io::Result<()> {
        let ended = |thread: JoinHandle<io::Result<()>>| {
            thread.join().unwrap_or_else(|why| std::panic::resume_unwind(why))
        };
        ended(self.writer).and(ended(self.reader))
    }
}

/// The connection to the client.
pub fn stdio() -> (Connection, Threads) {
    let (sender, outgoing) = crossbeam_channel::bounded::<Message>(0);
    let (incoming, receiver) = crossbeam_channel::bounded(0);
    let writer = std::thread::spawn(move || {
        outgoing.into_iter().try_for_each(|message| message.write(&mut io::stdout().lock()))
    });
    let reader = std::thread::spawn(move || {
        let mut input = io::stdin().lock();
        loop {
            match next(&mut input)? {
                None => return Ok(()),
                Some(Err(answer)) => write(&mut io::stdout().lock(), &answer)?,
                Some(Ok(message)) => {
                    let is_exit = matches!(&message, Message::Notification(note) if note.method == "exit");
                    // Without a receiver, the server ends.
                    if incoming.send(message).is_err() || is_exit {
                        return Ok(());
                    }
                }
            }
        }
    });
    (Connection { sender, receiver }, Threads { reader, writer })
}

fn write(to: &mut impl Write, answer: &Json) -> io::Result<()> {
    let text = answer.to_string();
    write!(to, "Content-Length: {}\r\n\r\n{text}", text.len())?;
    to.flush()
}

/// The next message, or the answer to one that can't be read; `None` at the end of the input.
fn next(from: &mut impl BufRead) -> io::Result<Option<Result<Message, Json>>> {
    let Some(length) = head(from)? else { return Ok(None) };
    let mut text = Vec::new();
    from.take(length).read_to_end(&mut text)?;
    if (text.len() as u64) < length {
        return Err(invalid("the input ends within a message"));
    }
    Ok(Some(message(&text)))
}

/// Reads the lines above a message, and returns its length.
fn head(from: &mut impl BufRead) -> io::Result<Option<u64>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        if from.take(MAX_HEADER).read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if !line.ends_with('\n') {
            return Err(invalid("a line of a message's head is too long, or has no end"));
        }
        match line.trim_end().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                let bytes =
                    value.trim().parse().map_err(|_| invalid("`Content-Length` is not a number of bytes"))?;
                if bytes > MAX_BYTES {
                    return Err(invalid(&format!(
                        "a message of {bytes} bytes is announced; the limit is {} MiB",
                        MAX_BYTES >> 20
                    )));
                }
                length = Some(bytes);
            }
            Some(_) => {}
            None if line.trim_end().is_empty() => {
                return length.map(Some).ok_or_else(|| invalid("a message without `Content-Length`"));
            }
            None => return Err(invalid("a line of a message's head without a colon")),
        }
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

fn message(text: &[u8]) -> Result<Message, Json> {
    let error = |id: Json, code: ErrorCode, why: String| json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code as i32, "message": why } });
    let json: Json = serde_json::from_slice(text)
        .map_err(|e| error(Json::Null, ErrorCode::ParseError, format!("not JSON: {e}")))?;
    let id = Some(&json["id"]).filter(|id| id.is_string() || id.is_number()).cloned().unwrap_or_default();
    let has_id = !json["id"].is_null();
    match serde_json::from_value(json) {
        // With an invalid id it would be a notification, which gets no answer.
        Ok(message) if !(has_id && matches!(message, Message::Notification(_))) => Ok(message),
        _ => Err(error(
            id,
            ErrorCode::InvalidRequest,
            "no request, response or notification of JSON-RPC 2.0".to_owned(),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lsp_server::{Notification, Request};

    fn framed(text: &str) -> String {
        format!("Content-Length: {}\r\n\r\n{text}", text.len())
    }

    #[test]
    fn a_message_that_is_none_is_answered_and_the_next_one_is_read() {
        let texts = [
            "{bad}",
            "{}",
            r#"{"id":7,"x":1}"#,
            r#"{"id":4294967296,"method":"x"}"#,
            "[1]",
            r#"{"id":1,"method":"a"}"#,
        ];
        let input = texts.map(framed).concat() + "content-length:16\nX: y\n\n{\"method\": \"b\"}\n";
        let mut input = input.as_bytes();
        for (code, id) in [
            (-32700, Json::Null),
            (-32600, Json::Null),
            (-32600, json!(7)),
            (-32600, json!(4_294_967_296_i64)),
            (-32600, Json::Null),
        ] {
            let answer = next(&mut input).unwrap().expect("not the end").expect_err("no message");
            assert_eq!((&answer["error"]["code"], &answer["id"]), (&json!(code), &id), "{answer}");
        }
        for method in ["a", "b"] {
            match next(&mut input).unwrap().expect("not the end").expect("a message") {
                Message::Request(Request { method: found, .. })
                | Message::Notification(Notification { method: found, .. }) => assert_eq!(found, method),
                other => panic!("{other:?}"),
            }
        }
        assert!(next(&mut input).unwrap().is_none());
    }

    #[test]
    fn what_has_no_end_is_an_error() {
        for (input, why) in [
            ("Content-Length: 99999999999999\r\n\r\n{}", "99999999999999 bytes is announced"),
            ("Content-Length: -1\r\n\r\n{}", "not a number of bytes"),
            ("Content-Length: 9\r\n\r\n{}", "ends within a message"),
            ("X: y\r\n\r\n{}", "without `Content-Length`"),
            ("{}\r\n\r\n", "without a colon"),
            ("Content-Length", "no end"),
        ] {
            let error = next(&mut input.as_bytes()).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(why), "{input}: {error}");
        }
    }
}
