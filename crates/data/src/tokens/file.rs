//! A complete file of tokens.

use crate::Content;
use base::error::{IoContext, Result};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// What is said of a file of tokens beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Summary {
    /// Bytes of a token, little endian: 2, or 4 for vocabularies above 65,536.
    pub width: usize,
    pub tokens: u64,
    pub documents: u64,
    /// Of the text, in UTF-8.
    pub bytes: u64,
}

/// Tokens on the disk, read by position.
#[derive(Debug)]
pub struct TokenFile {
    file: File,
    path: PathBuf,
    summary: Summary,
    content: Content,
}

impl TokenFile {
    /// `None` if it does not have the size that `summary` says.
    pub(super) fn open(path: &Path, summary: Summary, content: Content) -> Option<Self> {
        let file = File::open(path).ok()?;
        let expected = summary.tokens.checked_mul(summary.width as u64)?;
        let whole = matches!(summary.width, 2 | 4) && file.metadata().ok()?.len() == expected;
        whole.then(|| Self { file, path: path.to_owned(), summary, content })
    }

    /// Tokens in all.
    pub fn len(&self) -> usize {
        self.summary.tokens as usize
    }

    /// Of the text and the tokenizer.
    pub fn content(&self) -> Content {
        self.content
    }

    /// Writes the tokens from `start` on.
    ///
    /// # Errors
    /// The file can't be read.
    pub fn read(&self, start: usize, to: &mut [i64]) -> Result<()> {
        let width = self.summary.width;
        let mut bytes = vec![0; to.len() * width];
        self.file.read_exact_at(&mut bytes, (start * width) as u64).doing("read", &self.path)?;
        for (token, bytes) in to.iter_mut().zip(bytes.chunks_exact(width)) {
            *token = match *bytes {
                [a, b] => i64::from(u16::from_le_bytes([a, b])),
                [a, b, c, d] => i64::from(u32::from_le_bytes([a, b, c, d])),
                _ => 0,
            };
        }
        Ok(())
    }
}
