//! Messages from workers to the parent: JSON lines on their standard output.

use super::measure::Timing;
use crate::error::{Error, ExitCode, Result};
use crate::launch::Inbox;
use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Message {
    /// The next row; from rank 0 only.
    Row(Timing),
    Failed {
        code: ExitCode,
        message: String,
    },
    /// All rows are measured.
    Done,
}

impl Message {
    /// Writes the line to standard output.
    pub fn send(&self) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|e| Error::internal(format!("cannot encode a message: {e}")))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::internal(format!("cannot write to the parent: {e}")))
    }
}

/// Reads a worker's standard output.
pub struct MessageReader {
    pipe: PipeReader,
    inbox: Inbox,
}

impl MessageReader {
    pub fn new(pipe: PipeReader) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe, inbox: Inbox::default() })
    }

    /// The pipe, until the worker closes it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.inbox.is_closed()).then(|| self.pipe.as_fd())
    }

    /// The lines received so far; an error is a line in a wrong format, which no worker writes.
    pub fn lines(&mut self) -> Vec<Result<Message, String>> {
        let message =
            |line: Vec<u8>| serde_json::from_slice(&line).map_err(|_| String::from_utf8_lossy(&line).into());
        self.inbox.lines(&self.pipe).into_iter().map(message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_tagged_json() {
        let failed = Message::Failed { code: ExitCode::Internal, message: "a\nb".into() };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(text, r#"{"kind":"failed","code":"Internal","message":"a\nb"}"#);
        assert_eq!(serde_json::from_str::<Message>(&text).unwrap(), failed);
    }

    #[test]
    fn messages_are_distinguished_from_other_output() {
        let (pipe, mut worker) = io::pipe().unwrap();
        let mut reader = MessageReader::new(pipe).unwrap();
        worker.write_all(b"{\"kind\":\"done\"}\nhello\n").unwrap();
        assert_eq!(reader.lines(), [Ok(Message::Done), Err("hello".into())]);
        assert!(reader.fd().is_some());
    }
}
