//! Texts that become tokens, read from any place on.

use crate::fingerprint::digest_of_parts;
use crate::store::identity;
use base::error::{Error, IoContext, Result};
use data_encoding::HEXLOWER;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// A part of a document.
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// Number of the document.
    pub document: u64,
    pub part: Part<'a>,
    /// The document ends with it.
    pub ends: bool,
}

impl<'a> Chunk<'a> {
    /// What it has of a text; nothing of tokens.
    pub fn text(&self) -> &'a str {
        match self.part {
            Part::Text(text) => text,
            Part::Tokens(_) => "",
        }
    }
}

/// What a chunk has of its document.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    Text(&'a str),
    /// All of it as tokens, with its end.
    Tokens(&'a [u32]),
}

/// Documents in an order.
pub trait Texts: Send + Sync {
    /// Changes whenever the texts may have; found without reading them.
    fn identity(&self) -> Result<String>;
    /// Calls `each` for the parts of the documents from `document` on, of which the first `offset` bytes are left out. One of tokens has no
    /// offset.
    fn read(&self, document: u64, offset: u64, each: &mut dyn FnMut(Chunk<'_>) -> Result<()>) -> Result<()>;
    /// Whether all documents are [`Part::Tokens`].
    fn are_tokens(&self) -> bool {
        false
    }
    /// For messages.
    fn place(&self) -> String;
}

/// [`Texts::identity`] of texts that are in these files, and what else they depend on.
pub fn identity_of(parts: &[&str], files: &[PathBuf]) -> Result<String> {
    let files = files.iter().map(|path| identity(path)).collect::<Result<Vec<_>>>()?;
    let parts = parts.iter().copied().chain(files.iter().map(String::as_str));
    Ok(HEXLOWER.encode(&digest_of_parts(parts)[..8]))
}

/// Bytes that are read of a file at once.
const BLOCK: usize = 1 << 20;

/// Files of UTF-8 text, each a document; a line of JSON Lines (`.jsonl`, `.ndjson`) is one.
#[derive(Clone, Debug)]
pub struct TextFiles {
    pub paths: Vec<PathBuf>,
    /// The field of the text in JSON Lines.
    pub field: String,
    /// What the user calls them.
    pub named: String,
}

/// Whether it is read line by line.
pub fn is_json_lines(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("jsonl") || e.eq_ignore_ascii_case("ndjson"))
}

impl Texts for TextFiles {
    fn identity(&self) -> Result<String> {
        identity_of(&[&self.field], &self.paths)
    }

    fn read(&self, document: u64, offset: u64, each: &mut dyn FnMut(Chunk<'_>) -> Result<()>) -> Result<()> {
        // Documents of the files before.
        let mut before = 0;
        for path in &self.paths {
            if is_json_lines(path) {
                before += self.read_lines(path, before, (document, offset), each)?;
                continue;
            }
            if before >= document {
                let offset = if before == document { offset } else { 0 };
                read_text(path, before, offset, each)?;
            }
            before += 1;
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.named.clone()
    }
}

fn read_text(
    path: &Path,
    document: u64,
    offset: u64,
    each: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
) -> Result<()> {
    let mut file = base::files::open(path).doing("read", path)?;
    file.seek(SeekFrom::Start(offset)).doing("read", path)?;
    let (mut bytes, mut at) = (Vec::new(), offset);
    loop {
        // A character that the block before had not whole is left in it.
        let read = file.by_ref().take(BLOCK as u64).read_to_end(&mut bytes).doing("read", path)?;
        let valid = match std::str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            Err(e) if e.error_len().is_none() && read > 0 => e.valid_up_to(),
            Err(e) => {
                return Err(not_utf8(path, at + e.valid_up_to() as u64));
            }
        };
        let rest = bytes.split_off(valid);
        let text = String::from_utf8(std::mem::replace(&mut bytes, rest)).unwrap_or_default();
        let ends = read == 0;
        at += text.len() as u64;
        each(Chunk { document, part: Part::Text(&text), ends })?;
        if ends {
            return Ok(());
        }
    }
}

/// The error of a file that is no text.
pub fn not_utf8(path: &Path, offset: u64) -> Error {
    Error::data(format!("{} is not UTF-8 text: invalid byte at offset {offset}", path.display()))
}

impl TextFiles {
    /// Returns the number of documents in the file.
    fn read_lines(
        &self,
        path: &Path,
        before: u64,
        (document, offset): (u64, u64),
        each: &mut dyn FnMut(Chunk<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut lines = BufReader::with_capacity(BLOCK, base::files::open(path).doing("read", path)?);
        let (mut line, mut number, mut documents) = (Vec::new(), 0, 0);
        loop {
            line.clear();
            number += 1;
            if lines.read_until(b'\n', &mut line).doing("read", path)? == 0 {
                return Ok(documents);
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            let own = before + documents;
            documents += 1;
            if own < document {
                continue;
            }
            let text = self.text_of(&line).map_err(|e| {
                let message = format!("{}, line {number}: {}", path.display(), e.message);
                Error { message, ..e }
            })?;
            let offset = if own == document { offset as usize } else { 0 };
            let part = Part::Text(text.get(offset..).unwrap_or_default());
            each(Chunk { document: own, part, ends: true })?;
        }
    }

    /// # Errors
    /// Without the place of the line.
    fn text_of(&self, line: &[u8]) -> Result<String> {
        let without_text = |why: String| {
            Error::data(why).hint(
                "`text` of `[dataset]` (`--text` of `ddp-run tokenizer train`) names the field of the text",
            )
        };
        // Some editors begin a file with it.
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_slice(line).map_err(|e| {
                let why = e.to_string();
                // The line is known, and is the only one that was read.
                let why = why.split(" at line ").next().unwrap_or_default();
                Error::data(format!("it is no JSON object: {why}"))
            })?;
        match object.get(&self.field) {
            Some(serde_json::Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(without_text(format!("`{}` is no text", self.field))),
            None => Err(without_text(format!("it has no field `{}`", self.field))),
        }
    }
}
