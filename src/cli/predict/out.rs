//! Where predictions go: JSON lines to a file, which appears when it is whole, or to standard output.

use super::super::printed;
use crate::error::{Error, IoContext, Result};
use crate::files::Draft;
use crate::show;
use serde_json::{Map, Value};
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

pub(super) struct Lines {
    to: Option<(Draft, PathBuf)>,
}

impl Lines {
    /// To standard output without a file, and with `-`.
    pub fn new(file: Option<&Path>) -> Result<Self> {
        let file = file.filter(|file| *file != Path::new("-"));
        let to = match file {
            Some(file) => Some((Draft::new(file).doing("write", file)?, file.to_owned())),
            None => None,
        };
        Ok(Self { to })
    }

    /// Whether there is still a reader.
    pub fn write(&mut self, line: Map<String, Value>) -> Result<bool> {
        let text = format!("{}\n", Value::Object(line));
        match &mut self.to {
            Some((draft, file)) => draft.write_all(text.as_bytes()).doing("write", file).map(|()| true),
            None => {
                // JSON escapes only some control characters.
                let text =
                    if io::stdout().is_terminal() { show::message(&text) } else { text.as_str().into() };
                is_read(io::stdout().write_all(text.as_bytes()))
            }
        }
    }

    /// Makes the file visible.
    pub fn finish(self) -> Result<()> {
        match self.to {
            Some((draft, file)) => draft.put_synced().doing("write", &file),
            None => printed(io::stdout().flush()),
        }
    }
}

/// Whether somebody reads what was written to standard output: the work behind it ends with a reader that closes the pipe
/// (`| head`), which is not an error.
pub(super) fn is_read(written: io::Result<()>) -> Result<bool> {
    let closed = written.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe);
    printed(written).map(|()| !closed)
}

/// The error of a command that could not use some of its inputs: their lines say why, if there are lines.
pub(super) fn unusable(failed: usize, of: usize, first: &str, lines: bool) -> Result<()> {
    let error = Error::data(format!("{failed} of {of} inputs can't be used; the first: {first}"));
    match failed {
        0 => Ok(()),
        _ if lines => {
            Err(error.hint("the lines with `error` name all of them; the other lines are complete"))
        }
        _ => Err(error),
    }
}
