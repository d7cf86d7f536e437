//! How documents fill rows of a fixed number of tokens. It is found once and kept beside the tokens: `pieces` has the parts of documents, row
//! by row, and `rows` the number of pieces before each row.
//!
//! Documents are packed by best-fit decreasing (Johnson, 1973), as "Fewer Truncations Improve Language Modeling" (Ding et al., 2024,
//! arXiv:2404.10830) does: no document is cut that fits a row.

use super::file::TokenFiles;
use super::{locked, with_cache_hint};
use crate::fingerprint::digest_of_parts;
use crate::store::{Cache, DataFile, create_atomically};
use crate::{Content, Tokenizer};
use base::display::count;
use base::error::{Error, IoContext, Result};
use base::files::remove_begun;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use spec::choice;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::Path;

/// Of the format of the files, and of the way in which documents are packed.
const VERSION: u32 = 1;

/// Pieces that are packed together: what packing keeps in memory does not grow with the text.
const GROUP: usize = 1 << 20;

/// Tokens that are read at once.
const CHUNK: usize = 1 << 18;

choice! {
    /// How tokens become samples of `block_size`.
    Pack:
    /// One after the other, across the ends of documents.
    Stream = "stream",
    /// Whole documents, as many as fit. Each is as if it were alone: positions begin at 0, and no token sees another document.
    Documents = "documents",
    /// One document in each, padded.
    None = "none",
}

/// Tokens of a document that follow each other: `len` inputs from `start` on, whose targets are the tokens after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TokenPiece {
    pub start: u64,
    pub len: u32,
}

impl TokenPiece {
    const BYTES: usize = 12;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.start.to_le_bytes());
        bytes[8..].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (start, len) = bytes.split_first_chunk()?;
        Some(Self { start: u64::from_le_bytes(*start), len: u32::from_le_bytes(len.try_into().ok()?) })
    }
}

/// Which documents are packed, and how.
#[derive(Clone, Debug)]
pub struct Packing {
    /// Not [`Pack::Stream`].
    pub pack: Pack,
    /// Tokens of a row.
    pub block_size: usize,
    /// The documents that begin here.
    pub range: Range<usize>,
}

/// What is kept about the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Summary {
    rows: u64,
    pieces: u64,
    /// Inputs with a target, in all rows.
    tokens: u64,
    documents: u64,
    /// Documents without two tokens, which have nothing to train.
    empty: u64,
    /// Documents longer than a row.
    cut: u64,
}

/// The rows of a split.
#[derive(Debug)]
pub struct PackedRows {
    pieces: DataFile,
    rows: DataFile,
    summary: Summary,
    /// Of the tokens and of how they are packed.
    content: Content,
}

impl PackedRows {
    /// The rows of `tokens`, found and written to the cache if they are not there yet. `say` receives one-line messages about that.
    ///
    /// # Errors
    /// Tokens can't be read, or the cache not written.
    pub fn of(
        cache: &Cache,
        place: &str,
        tokens: &TokenFiles,
        tokenizer: &Tokenizer,
        packing: &Packing,
        say: &mut dyn FnMut(&str),
    ) -> Result<Self> {
        let end = tokenizer.end().ok_or_else(|| Error::internal("documents of tokens that have no end"))?;
        let Packing { pack, block_size, range } = packing;
        let how = format!("{VERSION} {end} {pack} {block_size} {range:?} of {}", tokens.len());
        let content = digest_of_parts([&tokens.content()[..], how.as_bytes()]);
        // The content of another program's file is that of some parts of it.
        let key = digest_of_parts([&content[..], tokens.identity()?.as_bytes()]);
        let (cache, name) = (cache.join("tokens")?, format!("{}.rows", HEXLOWER.encode(&key[..16])));
        let folder = cache.join(&name);
        if let Some(rows) = Self::open(&folder, content) {
            return Ok(rows);
        }
        let made = || {
            fs::create_dir_all(&cache).doing("create", &cache)?;
            let _lock = locked(&cache, &name)?;
            if Self::open(&folder, content).is_some() {
                return Ok(None);
            }
            remove_begun(&cache, |begun| begun == name);
            // It is not whole, as after a loss of power.
            if folder.exists() {
                fs::remove_dir_all(&folder).doing("remove", &folder)?;
            }
            let mut summary = Summary::default();
            create_atomically(&folder, |folder| {
                fs::create_dir_all(folder).doing("create", folder)?;
                summary = write(folder, tokens, end, packing)?;
                Ok(())
            })?;
            Ok(Some(summary))
        };
        if let Some(summary) = made().map_err(with_cache_hint)? {
            say(&summary.in_words(place, packing));
        }
        Self::open(&folder, content).ok_or_else(|| Error::io(format!("{} has disappeared", folder.display())))
    }

    /// `None` if they are not there, or not whole.
    fn open(folder: &Path, content: Content) -> Option<Self> {
        let summary = fs::read(folder.join("summary.json")).ok()?;
        let summary: Summary = serde_json::from_slice(&summary).ok()?;
        let [pieces, rows] = ["pieces", "rows"].map(|name| DataFile::open(&folder.join(name)).ok());
        let (pieces, rows) = (pieces?, rows?);
        let whole = pieces.len() as u64 == summary.pieces * TokenPiece::BYTES as u64
            && rows.len() as u64 == 8 * (summary.rows + 1);
        whole.then_some(Self { pieces, rows, summary, content })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.summary.rows as usize
    }

    pub fn content(&self) -> Content {
        self.content
    }

    /// The pieces that a row begins with; the rest is padding.
    ///
    /// # Errors
    /// The files can't be read.
    pub fn pieces(&self, row: usize) -> Result<Vec<TokenPiece>> {
        let mut ends = [[0; 8]; 2];
        self.rows.read_at(8 * row, ends.as_flattened_mut())?;
        let [start, end] = ends.map(|bytes| u64::from_le_bytes(bytes) as usize);
        let mut bytes = vec![0; end.saturating_sub(start) * TokenPiece::BYTES];
        self.pieces.read_at(start * TokenPiece::BYTES, &mut bytes)?;
        Ok(bytes.chunks_exact(TokenPiece::BYTES).filter_map(TokenPiece::from_bytes).collect())
    }
}

impl Summary {
    fn in_words(self, place: &str, packing: &Packing) -> String {
        let filled = 100.0 * self.tokens as f64 / (self.rows * packing.block_size as u64).max(1) as f64;
        let further = |n: u64, what: &str| if n > 0 { format!(", {n} {what}") } else { String::new() };
        format!(
            "{place}: {} in {} of {} tokens, {filled:.1} % filled{}{}",
            count(self.documents as usize, "document"),
            count(self.rows as usize, "row"),
            packing.block_size,
            further(self.cut, "longer than a row and cut"),
            further(self.empty, "left out, without a token to train"),
        )
    }
}

/// Writes the three files to `folder`.
fn write(folder: &Path, tokens: &TokenFiles, end: u32, packing: &Packing) -> Result<Summary> {
    let create = |name: &str| {
        let path = folder.join(name);
        File::create(&path).doing("create", &path).map(|file| (BufWriter::new(file), path))
    };
    let ((mut pieces, pieces_path), (mut rows, rows_path)) = (create("pieces")?, create("rows")?);
    let mut summary = Summary::default();
    let mut write_row = |row: &[TokenPiece], summary: &mut Summary| -> Result<()> {
        rows.write_all(&summary.pieces.to_le_bytes()).doing("write", &rows_path)?;
        for piece in row {
            pieces.write_all(&piece.to_bytes()).doing("write", &pieces_path)?;
            summary.tokens += u64::from(piece.len);
        }
        summary.pieces += row.len() as u64;
        summary.rows += 1;
        Ok(())
    };
    let mut group: Vec<TokenPiece> = Vec::new();
    let block = packing.block_size as u64;
    each_document(tokens, end, packing.range.clone(), &mut |document| {
        summary.documents += 1;
        let inputs = (document.end - document.start).saturating_sub(1);
        summary.empty += u64::from(inputs == 0);
        summary.cut += u64::from(inputs > block);
        for start in (0..inputs).step_by(packing.block_size) {
            let len = block.min(inputs - start) as u32;
            group.push(TokenPiece { start: document.start + start, len });
            if packing.pack == Pack::None {
                write_row(&group, &mut summary)?;
                group.clear();
            } else if group.len() == GROUP {
                for row in best_fit(std::mem::take(&mut group), packing.block_size) {
                    write_row(&row, &mut summary)?;
                }
            }
        }
        Ok(())
    })?;
    for row in best_fit(group, packing.block_size) {
        write_row(&row, &mut summary)?;
    }
    rows.write_all(&summary.pieces.to_le_bytes()).doing("write", &rows_path)?;
    for (file, path) in [(pieces, &pieces_path), (rows, &rows_path)] {
        let file = file.into_inner().map_err(std::io::IntoInnerError::into_error).doing("write", path)?;
        file.sync_all().doing("write", path)?;
    }
    let (path, text) = (folder.join("summary.json"), serde_json::to_vec(&summary));
    fs::write(&path, text.map_err(|e| Error::internal(e.to_string()))?).doing("write", &path)?;
    Ok(summary)
}

/// Calls `each` with the tokens of each document that begins in `range`, with the one that ends it.
fn each_document(
    tokens: &TokenFiles,
    end: u32,
    range: Range<usize>,
    each: &mut dyn FnMut(Range<u64>) -> Result<()>,
) -> Result<()> {
    if range.is_empty() {
        return Ok(());
    }
    // The first one may have begun before.
    let mut start = (range.start == 0).then_some(0);
    let mut at = range.start.saturating_sub(1);
    let mut chunk = vec![0; CHUNK];
    while at < tokens.len() {
        let chunk = &mut chunk[..CHUNK.min(tokens.len() - at)];
        tokens.read(at, chunk)?;
        for (after, token) in (at + 1..).zip(&*chunk) {
            if *token != i64::from(end) {
                continue;
            }
            if let Some(start) = start {
                each(start as u64..after as u64)?;
            }
            if after >= range.end {
                return Ok(());
            }
            start = Some(after);
        }
        at += chunk.len();
    }
    match start.filter(|start| *start < tokens.len()) {
        Some(start) => each(start as u64..tokens.len() as u64),
        None => Ok(()),
    }
}

/// Rows of pieces of at most `size` tokens: the longest pieces first, each in the fullest row that has room for it. Rows, and the pieces of
/// a row, are in the order of the text.
fn best_fit(mut pieces: Vec<TokenPiece>, size: usize) -> Vec<Vec<TokenPiece>> {
    pieces.sort_unstable_by_key(|piece| (std::cmp::Reverse(piece.len), piece.start));
    let mut rows: Vec<Vec<TokenPiece>> = Vec::new();
    // The rows that have so much room left.
    let mut by_room: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for piece in pieces {
        let len = piece.len as usize;
        let (room, row) = match by_room.range_mut(len..).next() {
            Some((&room, with_room)) => {
                let row = with_room.pop().unwrap_or_default();
                if with_room.is_empty() {
                    by_room.remove(&room);
                }
                (room, row)
            }
            None => {
                rows.push(Vec::new());
                (size, rows.len() - 1)
            }
        };
        rows[row].push(piece);
        if room > len {
            by_room.entry(room - len).or_default().push(row);
        }
    }
    rows.iter_mut().for_each(|row| row.sort_unstable());
    rows.sort_unstable();
    rows
}

#[cfg(test)]
mod tests {
    use super::super::file::TokenFile;
    use super::*;
    use proptest::prelude::*;

    const END: u32 = 256;

    fn files(folder: &Path, documents: &[Vec<u16>], ended: bool) -> TokenFiles {
        let mut tokens: Vec<u16> =
            documents.iter().flat_map(|document| document.iter().copied().chain([END as u16])).collect();
        if !ended {
            tokens.pop();
        }
        let bytes: Vec<u8> = tokens.into_iter().flat_map(u16::to_le_bytes).collect();
        // Another inode than that of a file before it.
        let (path, written) = (folder.join("tokens.bin"), folder.join("written.bin"));
        fs::write(&written, bytes).unwrap();
        fs::rename(&written, &path).unwrap();
        TokenFile::of_another_program(&path, &Tokenizer::of_bytes()).unwrap().into()
    }

    fn documents() -> impl Strategy<Value = Vec<Vec<u16>>> {
        prop::collection::vec(prop::collection::vec(0_u16..256, 0..20), 1..30)
    }

    proptest! {
        /// Each token that follows another one of its document is the target of exactly one input, in either split; and what fits a row
        /// is not cut.
        #[test]
        fn rows_have_each_target_once(
            documents in documents(),
            ended: bool,
            block_size in 1_usize..12,
            cut in 0.0..=1.0,
            padded: bool,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let tokens = files(folder.path(), &documents, ended);
            let cut = (tokens.len() as f64 * cut) as usize;
            let pack = if padded { Pack::None } else { Pack::Documents };
            let mut all: Vec<(u64, u64)> = Vec::new();
            for range in [0..cut, cut..tokens.len()] {
                let packing = Packing { pack, block_size, range: range.clone() };
                let cache = Cache::at(folder.path());
                let open = || {
                    PackedRows::of(&cache, "it", &tokens, &Tokenizer::of_bytes(), &packing, &mut |_| ()).unwrap()
                };
                let (rows, again) = (open(), open());
                prop_assert_eq!((rows.summary, rows.content), (again.summary, again.content));
                for row in 0..rows.len() {
                    let pieces = rows.pieces(row).unwrap();
                    let filled: usize = pieces.iter().map(|piece| piece.len as usize).sum();
                    prop_assert!(filled > 0 && filled <= block_size);
                    prop_assert!(!padded || pieces.len() == 1);
                    all.extend(pieces.iter().map(|piece| (piece.start, piece.start + u64::from(piece.len))));
                }
            }
            all.sort_unstable();
            let mut expected = Vec::new();
            let mut start = 0;
            for (i, document) in documents.iter().enumerate() {
                let inputs = document.len() - usize::from(!ended && i + 1 == documents.len()).min(document.len());
                let pieces = (0..inputs).step_by(block_size).map(|at| (at, inputs.min(at + block_size)));
                expected.extend(pieces.map(|(from, to)| ((start + from) as u64, (start + to) as u64)));
                start += document.len() + 1;
            }
            prop_assert_eq!(all, expected);
        }

        /// Two rows that are at most half full would have been one.
        #[test]
        fn at_most_one_row_is_half_empty(lengths in prop::collection::vec(1_u32..=16, 1..200)) {
            let pieces = |(i, len): (usize, &u32)| TokenPiece { start: 100 * i as u64, len: *len };
            let rows = best_fit(lengths.iter().enumerate().map(pieces).collect(), 16);
            let filled = |row: &Vec<TokenPiece>| row.iter().map(|piece| piece.len).sum::<u32>();
            prop_assert!(rows.iter().all(|row| filled(row) <= 16));
            prop_assert!(rows.iter().filter(|row| filled(row) <= 8).count() <= 1);
            let mut all: Vec<u32> = rows.iter().flatten().map(|piece| piece.len).collect();
            let mut lengths = lengths;
            all.sort_unstable();
            lengths.sort_unstable();
            prop_assert_eq!(all, lengths);
        }
    }

    #[test]
    fn documents_fill_rows_and_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let document = |len: u16| (0..len).collect::<Vec<u16>>();
        let tokens = files(folder.path(), &[5, 0, 3, 9, 2].map(document), true);
        let packing = Packing { pack: Pack::Documents, block_size: 8, range: 0..tokens.len() };
        let mut said = String::new();
        let cache = Cache::at(folder.path());
        let of = |say: &mut dyn FnMut(&str)| {
            PackedRows::of(&cache, "a.txt", &tokens, &Tokenizer::of_bytes(), &packing, say).unwrap()
        };
        let rows = of(&mut |message| said.push_str(message));
        let expected = "a.txt: 5 documents in 3 rows of 8 tokens, 79.2 % filled, 1 longer than a row and cut, \
                        1 left out, without a token to train";
        assert_eq!(said, expected);
        let piece = |start, len| TokenPiece { start, len };
        let found: Vec<_> = (0..3).map(|row| rows.pieces(row).unwrap()).collect();
        assert_eq!(
            found,
            [vec![piece(0, 5), piece(7, 3)], vec![piece(11, 8)], vec![piece(19, 1), piece(21, 2)]]
        );
        // One of which a part is missing is made again.
        let made = fs::read_dir(folder.path().join("tokens")).unwrap().map(|entry| entry.unwrap().path());
        let made = made.into_iter().find(|path| path.is_dir()).unwrap();
        fs::write(made.join("pieces"), b"short").unwrap();
        let again = of(&mut |_| ());
        assert_eq!(again.pieces(2).unwrap(), found[2]);
    }

    /// The contents of large files of other programs are compared in parts; their rows are not taken for those of another file.
    #[test]
    fn a_file_that_was_written_again_is_packed_again() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let first_row = |lengths: [usize; 2]| {
            let tokens = files(folder.path(), &lengths.map(|len| vec![7; len]), true);
            let packing = Packing { pack: Pack::None, block_size: 8, range: 0..tokens.len() };
            let rows = PackedRows::of(&cache, "it", &tokens, &Tokenizer::of_bytes(), &packing, &mut |_| ());
            (rows.unwrap().pieces(0).unwrap()[0].len, tokens.identity().unwrap())
        };
        let ((first, before), (second, after)) = (first_row([3, 5]), first_row([5, 3]));
        assert_eq!([first, second], [3, 5]);
        assert_ne!(before, after);
    }
}
