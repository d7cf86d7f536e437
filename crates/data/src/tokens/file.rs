//! Files of tokens: those of the cache, and those of other programs.

use crate::fingerprint::{digest_of_parts, sampled_digest};
use crate::store::{DataFile, identity};
use crate::{Content, Tokenizer};
use base::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::Path;

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

/// Bytes of a token by the number of different ones.
pub(super) fn width_of(vocabulary: usize) -> usize {
    if vocabulary <= 1 << 16 { 2 } else { 4 }
}

/// Tokens on the disk, read by position.
#[derive(Debug)]
pub struct TokenFile {
    file: DataFile,
    /// Bytes before the first token.
    header: usize,
    width: usize,
    len: usize,
    content: Content,
}

/// The header of llm.c's files: 256 numbers of 4 bytes, the first of which tells the width.
const LLMC_HEADER: usize = 1024;
const LLMC_WIDTHS: [(u32, usize); 2] = [(20_240_520, 2), (20_240_801, 4)];

impl TokenFile {
    /// `None` if it does not have the size that `summary` says.
    pub(super) fn open(path: &Path, summary: Summary, content: Content) -> Option<Self> {
        let file = DataFile::open(path).ok()?;
        let Summary { width, tokens, .. } = summary;
        let expected = tokens.checked_mul(width as u64)?;
        let whole = matches!(width, 2 | 4) && file.len() as u64 == expected;
        whole.then(|| Self { file, header: 0, width, len: tokens as usize, content })
    }

    /// A file that another program wrote: plain numbers of 2 bytes, or of 4 where `tokenizer` has more than 65,536 tokens, as nanoGPT's; or with
    /// the header of llm.c.
    ///
    /// # Errors
    /// It can't be read, or has no whole number of tokens.
    pub fn of_another_program(path: &Path, tokenizer: &Tokenizer) -> Result<Self> {
        let file = DataFile::open(path)?;
        let mut first = [0; 4];
        if file.len() >= LLMC_HEADER {
            file.read_at(0, &mut first)?;
        }
        let magic = u32::from_le_bytes(first);
        let llmc = LLMC_WIDTHS.iter().find(|(known, _)| *known == magic);
        let (header, width) = match llmc {
            Some((_, width)) => (LLMC_HEADER, *width),
            None => (0, width_of(tokenizer.vocabulary_size())),
        };
        let bytes = file.len() - header;
        if !bytes.is_multiple_of(width) {
            return Err(Error::data(format!(
                "{} has {bytes} bytes of tokens, which is no multiple of {width}, the bytes of each",
                path.display()
            ))
            .hint("a tokenizer with more than 65,536 tokens has 4 bytes for each, any other 2"));
        }
        let content = digest_of_parts([sampled_digest(&file)?, tokenizer.digest()]);
        Ok(Self { len: bytes / width, file, header, width, content })
    }

    fn read(&self, start: usize, to: &mut [i64]) -> Result<()> {
        let width = self.width;
        let mut bytes = vec![0; to.len() * width];
        self.file.read_at(self.header + start * width, &mut bytes)?;
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

/// The tokens of one file after the other.
#[derive(Debug)]
pub struct TokenFiles {
    /// Each with the number of tokens before it.
    files: Vec<(usize, TokenFile)>,
    len: usize,
}

impl From<TokenFile> for TokenFiles {
    fn from(file: TokenFile) -> Self {
        [file].into_iter().collect()
    }
}

impl FromIterator<TokenFile> for TokenFiles {
    fn from_iter<I: IntoIterator<Item = TokenFile>>(files: I) -> Self {
        let mut all = Self { files: Vec::new(), len: 0 };
        for file in files {
            let before = all.len;
            all.len += file.len;
            all.files.push((before, file));
        }
        all
    }
}

impl TokenFiles {
    /// Tokens in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Of the texts and the tokenizer.
    pub fn content(&self) -> Content {
        match &self.files[..] {
            [(_, only)] => only.content,
            files => digest_of_parts(files.iter().map(|(_, file)| file.content)),
        }
    }

    /// A hash of the files' paths, sizes and times.
    ///
    /// # Errors
    /// One is not there any more.
    pub(super) fn identity(&self) -> Result<String> {
        self.files.iter().map(|(_, file)| identity(file.file.path())).collect()
    }

    /// Writes the tokens from `start` on.
    ///
    /// # Errors
    /// A file can't be read.
    pub fn read(&self, mut start: usize, mut to: &mut [i64]) -> Result<()> {
        let first = self.files.partition_point(|(before, _)| *before <= start).saturating_sub(1);
        for (before, file) in &self.files[first..] {
            let here = to.len().min((before + file.len).saturating_sub(start));
            let (now, rest) = to.split_at_mut(here);
            if !now.is_empty() {
                file.read(start - before, now)?;
            }
            (start, to) = (start + here, rest);
        }
        match to.is_empty() {
            true => Ok(()),
            false => Err(Error::internal("tokens after the last one were asked for")),
        }
    }
}
