//! What workers tell the parent: JSON lines on their standard output.

use super::measure::Timing;
use crate::error::{Error, ExitCode, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "news")]
pub enum News {
    /// The next row, from rank 0.
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
        let text =
            serde_json::to_string(self).map_err(|e| Error::internal(format!("cannot tell news: {e}")))?;
        let mut out = io::stdout().lock();
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(|e| Error::internal(format!("cannot tell the parent: {e}")))
    }
}

/// A worker's standard output, read as far as it goes.
pub struct NewsReader {
    /// Until the worker has closed it.
    pipe: Option<PipeReader>,
    /// A line that has not ended.
    begun: Vec<u8>,
}

impl NewsReader {
    pub fn new(pipe: PipeReader) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&pipe, true)?;
        Ok(Self { pipe: Some(pipe), begun: Vec::new() })
    }

    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// The lines that have come, without waiting; an error is a line that only a stranger or a bug writes.
    pub fn lines(&mut self) -> Vec<Result<News, String>> {
        let mut bytes = [0; 4096];
        while let Some(pipe) = &mut self.pipe {
            match pipe.read(&mut bytes) {
                Ok(n) if n > 0 => self.begun.extend_from_slice(&bytes[..n]),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                _ => self.pipe = None,
            }
        }
        let whole = self.begun.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.begun.drain(..whole).collect();
        let news =
            |line: &[u8]| serde_json::from_slice(line).map_err(|_| String::from_utf8_lossy(line).into());
        lines.split_inclusive(|b| *b == b'\n').map(|line| news(line.trim_ascii_end())).collect()
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
    fn lines_are_heard_once_they_are_whole() {
        let (pipe, mut worker) = io::pipe().unwrap();
        let mut news = NewsReader::new(pipe).unwrap();
        assert_eq!(news.lines(), []);
        worker.write_all(b"{\"news\":\"done\"}\nhello\n{\"news\"").unwrap();
        assert_eq!(news.lines(), [Ok(News::Done), Err("hello".into())]);
        worker.write_all(b":\"done\"}\n").unwrap();
        drop(worker);
        assert_eq!((news.lines(), news.fd().is_none()), (vec![Ok(News::Done)], true));
    }
}
