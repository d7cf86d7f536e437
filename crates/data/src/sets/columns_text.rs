//! A column of texts, or of tokens, as documents.

use super::columns::{Cell, CellKind, RowSet, Stored, TOKENS, column};
use super::text::{SplitTexts, Windowing};
use crate::Splits;
use crate::fingerprint::digest_of_parts;
use crate::tokens::{Chunk, Part, Texts, identity_of};
use base::display;
use base::error::{Error, Result};
use std::ops::ControlFlow::Continue;
use std::path::PathBuf;
use std::sync::Arc;

/// The column beside the tokens that has 0 for padding, as tokenizers of Hugging Face write it.
const MASK: &str = "attention_mask";

/// A column of texts as the texts of the splits: of characters, joined with line ends; else each row is a document.
pub(super) fn open_text(stored: &Stored, name: &str, windows: Windowing) -> Result<Splits> {
    let joined = |set: &Arc<dyn RowSet>| joined(&**set, name);
    let texts = SplitTexts {
        train: joined(&stored.train)?,
        val: stored.val.as_ref().map(joined).transpose()?,
        test: stored.test.as_ref().map(joined).transpose()?,
        file: None,
    };
    let all = [Some(&texts.train), texts.val.as_ref(), texts.test.as_ref()];
    let content = digest_of_parts(all.into_iter().flatten());
    windows.splits(&stored.place, &texts, content)
}

/// A column of texts, each row a document.
pub(super) struct RowTexts {
    pub set: Arc<dyn RowSet>,
    /// The column.
    pub name: String,
    /// The files of the rows.
    pub files: Vec<PathBuf>,
}

impl Texts for RowTexts {
    fn identity(&self) -> Result<String> {
        identity_of(&[self.set.place(), &self.name], &self.files)
    }

    fn read(&self, document: u64, offset: u64, each: &mut dyn FnMut(Chunk<'_>) -> Result<()>) -> Result<()> {
        each_text(&*self.set, &self.name, &mut |row, text| {
            let start = if row as u64 == document { offset as usize } else { 0 };
            match row as u64 >= document {
                true => each(Chunk { document: row as u64, part: Part::Text(&text[start..]), ends: true }),
                false => Ok(()),
            }
        })
    }

    fn place(&self) -> String {
        self.set.place().to_owned()
    }
}

/// A column of lists of tokens, each row a document.
pub(super) struct RowTokens {
    pub set: Arc<dyn RowSet>,
    /// The column.
    pub name: String,
    /// The files of the rows.
    pub files: Vec<PathBuf>,
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Put behind each row that does not end with it.
    pub end: Option<u32>,
}

impl Texts for RowTokens {
    fn identity(&self) -> Result<String> {
        let end = self.end.map(|end| end.to_string()).unwrap_or_default();
        identity_of(&["tokens", self.set.place(), &self.name, &end], &self.files)
    }

    fn read(&self, document: u64, _: u64, each: &mut dyn FnMut(Chunk<'_>) -> Result<()>) -> Result<()> {
        let mut columns = vec![column(&*self.set, &self.name, TOKENS)?];
        columns.extend(self.set.columns().iter().position(|c| c.name == MASK && c.kind == CellKind::Lists));
        let mut tokens = Vec::new();
        self.set.read(&columns, &mut |row, cells| {
            if row as u64 >= document {
                tokens.clear();
                self.add(cells, &mut tokens).map_err(|e| {
                    let message = format!("{}: {}", self.set.place_of(row), e.message);
                    Error { message, ..e }
                })?;
                each(Chunk { document: row as u64, part: Part::Tokens(&tokens), ends: true })?;
            }
            Ok(Continue(()))
        })
    }

    fn are_tokens(&self) -> bool {
        true
    }

    fn place(&self) -> String {
        self.set.place().to_owned()
    }
}

impl RowTokens {
    /// Adds the tokens of a row, and its end.
    ///
    /// # Errors
    /// Without the place of the row.
    fn add(&self, cells: &[Cell<'_>], to: &mut Vec<u32>) -> Result<()> {
        let name = display::name(&self.name);
        let no_list = |name: &str, cell: &Cell<'_>| {
            let what = cell.in_words();
            Error::data(format!("`{name}` holds {what} instead of a list of whole numbers"))
        };
        let Cell::List(ids) = &cells[0] else {
            return Err(no_list(&name, &cells[0])
                .hint(format!("`[dataset] {TOKENS}` names a column of lists of tokens")));
        };
        let kept: Option<&[i64]> = match cells.get(1) {
            None => None,
            Some(Cell::List(mask)) if mask.len() == ids.len() => Some(mask),
            Some(Cell::List(mask)) => {
                let (tokens, others) =
                    (display::count(ids.len(), "token"), display::count(mask.len(), "number"));
                return Err(Error::data(format!("`{name}` has {tokens}, but `{MASK}` has {others}"))
                    .hint(format!("`{MASK}` has 1 for each token, and 0 for padding")));
            }
            Some(other) => return Err(no_list(MASK, other)),
        };
        for (at, id) in ids.iter().enumerate() {
            if kept.is_some_and(|mask| mask[at] == 0) {
                continue;
            }
            let known = u32::try_from(*id).ok().filter(|id| (*id as usize) < self.vocabulary);
            to.push(known.ok_or_else(|| {
                let all = display::count(self.vocabulary, "token");
                Error::data(format!("`{name}` has the token {id}, but the tokenizer has {all}, from 0 on"))
                    .hint("`[tokenizer] path` names the tokenizer that the tokens are from")
            })?);
        }
        to.extend(self.end.filter(|end| to.last() != Some(end)));
        Ok(())
    }
}

/// The texts of a column, with a line end between two.
fn joined(set: &dyn RowSet, name: &str) -> Result<String> {
    let mut all = String::new();
    each_text(set, name, &mut |row, text| {
        if row > 0 {
            all.push('\n');
        }
        all.push_str(text);
        Ok(())
    })?;
    Ok(all)
}

/// Calls `each` with the texts of a column, by row.
fn each_text(set: &dyn RowSet, name: &str, each: &mut dyn FnMut(usize, &str) -> Result<()>) -> Result<()> {
    let at = column(set, name, "text")?;
    set.read(&[at], &mut |row, cells| match &cells[0] {
        Cell::Text(text) => each(row, text).map(Continue),
        other => {
            let (place, name, what) = (set.place_of(row), display::name(name), other.in_words());
            Err(Error::data(format!("{place}: `{name}` holds {what} instead of a text"))
                .hint("`[dataset] text` names a column of texts"))
        }
    })
}
