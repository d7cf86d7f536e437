//! Cuts long documents into pieces whose tokens are those of the whole.

use super::{Chunk, Part};
use crate::Tokenizer;
use crate::store::megabytes;
use base::error::{Error, Result};

/// Bytes of a piece, nearly.
pub(super) const PIECE: usize = 1 << 16;

/// Bytes before and after a cut whose tokens are compared with and without it.
const AROUND: usize = 1024;

/// Places of a piece that are tried.
const TRIED: usize = 64;

/// The longest document that nothing cuts, in bytes.
const UNCUT: usize = 1 << 26;

/// A place in documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
pub(super) struct Place {
    pub document: u64,
    /// Bytes of the document before it.
    pub offset: u64,
}

/// What is tokenised by itself.
pub(super) enum OwnedPart {
    Text(String),
    /// It has been already, with the end of its document.
    Tokens(Vec<u32>),
}

/// A part of a document.
pub(super) struct Piece {
    pub part: OwnedPart,
    /// The document ends with it.
    pub ends: bool,
    /// What follows it.
    pub after: Place,
}

/// Takes documents in parts of any size, and gives pieces.
pub(super) struct Pieces<'a> {
    tokenizer: &'a Tokenizer,
    /// The start of `pending`.
    at: Place,
    pending: String,
    /// The length at which a cut is looked for.
    wanted: usize,
}

impl<'a> Pieces<'a> {
    pub fn new(tokenizer: &'a Tokenizer, at: Place) -> Self {
        Self { tokenizer, at, pending: String::new(), wanted: 2 * PIECE }
    }

    /// Calls `each` with the pieces that are complete.
    ///
    /// # Errors
    /// Those of `each`; the document, in `place`, is too long for a tokenizer that allows no cut.
    pub fn add(
        &mut self,
        chunk: Chunk<'_>,
        place: &str,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        if chunk.document != self.at.document {
            self.at = Place { document: chunk.document, offset: 0 };
        }
        let next = Place { document: chunk.document + 1, offset: 0 };
        match chunk.part {
            Part::Text(text) => self.pending.push_str(text),
            Part::Tokens(tokens) => {
                self.at = next;
                return each(Piece { part: OwnedPart::Tokens(tokens.to_vec()), ends: true, after: next });
            }
        }
        while self.pending.len() >= self.wanted {
            match self.cut() {
                Some(cut) => {
                    let rest = self.pending.split_off(cut);
                    self.at.offset += cut as u64;
                    self.wanted = 2 * PIECE;
                    let part = OwnedPart::Text(std::mem::replace(&mut self.pending, rest));
                    each(Piece { part, ends: false, after: self.at })?;
                }
                None if self.pending.len() > UNCUT => {
                    let length = megabytes(UNCUT as u64);
                    return Err(Error::data(format!(
                        "{place}: a document has more than {length}, and with this tokenizer its tokens depend on all of it"
                    ))
                    .hint("divide it into documents, such as lines of JSON Lines"));
                }
                None => self.wanted = 2 * self.pending.len(),
            }
        }
        if chunk.ends {
            self.at = next;
            self.wanted = 2 * PIECE;
            let part = OwnedPart::Text(std::mem::take(&mut self.pending));
            each(Piece { part, ends: true, after: next })?;
        }
        Ok(())
    }

    /// Where the pending text may be cut: before a line, else before a word.
    fn cut(&self) -> Option<usize> {
        let text = self.pending.as_str();
        let from = text.ceil_char_boundary(text.len() / 2);
        let [lines, words]: [fn(&str, usize) -> bool; 2] = [begins_line, begins_word];
        [lines, words].into_iter().find_map(|begins| {
            let places = text[from..].char_indices().map(|(at, _)| from + at);
            places.filter(|at| begins(text, *at)).take(TRIED).find(|at| self.is_between_tokens(*at))
        })
    }

    /// Whether the tokens around a place are the same if the text is cut there.
    fn is_between_tokens(&self, at: usize) -> bool {
        let text = self.pending.as_str();
        let from = text.floor_char_boundary(at.saturating_sub(AROUND));
        let to = text.ceil_char_boundary((at + AROUND).min(text.len()));
        let [whole, before, behind] =
            [&text[from..to], &text[from..at], &text[at..to]].map(|part| self.tokenizer.encode(part));
        let (Ok(whole), Ok(before), Ok(behind)) = (whole, before, behind) else { return false };
        whole == [before, behind].concat()
    }
}

impl OwnedPart {
    /// Bytes of it.
    pub fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Tokens(tokens) => size_of_val(&tokens[..]),
        }
    }
}

fn begins_line(text: &str, at: usize) -> bool {
    text[..at].ends_with('\n') && !text[at..].starts_with(char::is_whitespace)
}

fn begins_word(text: &str, at: usize) -> bool {
    let behind = text[at..].strip_prefix(' ');
    behind.is_some_and(|behind| behind.starts_with(char::is_alphanumeric))
        && text[..at].ends_with(char::is_alphanumeric)
}
