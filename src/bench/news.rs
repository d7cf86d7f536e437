//! Messages from workers to the parent: JSON lines on their standard output.

use super::measure::Timing;
use crate::error::{Error, ExitCode, Result};
use crate::launch::Inbox;
use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, Write};
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "news")]
pub enum News {
    /// The next row; from rank 0 only.
    Row(Timing),
    Failed {
        code: ExitCode,
        message: String,
    },
    /// All rows are measured.
    Done,
}

impl News {
    /// Writes the line to standard output.
    pub fn tell(&self) -> Result<()> {
        let text = serde_json::to_string(self)
            .map_err(|e| Error::internal(format!("cannot encode a message: {e}")))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::internal(format!("cannot write to the parent: {e}")))
    }
}

/// Reads a worker's standard output.
pub struct NewsReader {
    pipe: PipeReader,
    inbox: Inbox,
}

impl NewsReader {
    pub fn new(pipe: PipeReader) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe, inbox: Inbox::default() })
    }

    /// The pipe, until the worker closes it.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.inbox.is_closed()).then(|| self.pipe.as_fd())
    }

    /// The lines received so far; an error is a line in a wrong format, which no worker writes.
    pub fn lines(&mut self) -> Vec<Result<News, String>> {
        let news =
            |line: Vec<u8>| serde_json::from_slice(&line).map_err(|_| String::from_utf8_lossy(&line).into());
        self.inbox.lines(&self.pipe).into_iter().map(news).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_names_itself() {
        let failed = News::Failed { code: ExitCode::Internal, message: "a\nb".into() };
        let text = serde_json::to_string(&failed).unwrap();
        assert_eq!(text, r#"{"news":"failed","code":"Internal","message":"a\nb"}"#);
        assert_eq!(serde_json::from_str::<News>(&text).unwrap(), failed);
    }

    #[test]
    fn news_is_told_from_noise() {
        let (pipe, mut worker) = io::pipe().unwrap();
        let mut news = NewsReader::new(pipe).unwrap();
        worker.write_all(b"{\"news\":\"done\"}\nhello\n").unwrap();
        assert_eq!(news.lines(), [Ok(News::Done), Err("hello".into())]);
        assert!(news.fd().is_some());
    }
}
