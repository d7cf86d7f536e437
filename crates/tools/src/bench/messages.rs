//! Messages from workers to the parent: JSON lines on their standard output.

use super::measure::Timing;
use base::error::{Error, Result};
use launch::ExitCode;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

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
}
