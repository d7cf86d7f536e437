//! Writes a file of tokens. One that was begun is continued.

use super::file::{Summary, width_of};
use super::pieces::{OwnedPart, Piece, Pieces, Place};
use super::{Texts, summary_path, tokens_path};
use crate::Tokenizer;
use crate::store::{megabytes, write_atomically};
use base::display::count;
use base::error::{Error, IoContext, Result};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of text that are tokenised at once, by all cores.
const BATCH: usize = 1 << 23;

/// What a piece takes besides its text, nearly.
const OF_A_PIECE: usize = 64;

/// Between two messages.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// How far a file is, with what is before `next`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct Progress {
    /// Of the texts: others may only have begun as these.
    identity: String,
    next: Place,
    #[serde(flatten)]
    written: Summary,
}

struct Writer<'a> {
    tokenizer: &'a Tokenizer,
    threads: rayon::ThreadPool,
    file: File,
    /// Of the file that is being written.
    path: PathBuf,
    progress_path: PathBuf,
    progress: Progress,
    batch: Vec<Piece>,
    /// Bytes in it, and a few for each piece.
    filled: usize,
    begun: Instant,
    /// Bytes of text when it began.
    before: u64,
    said: Instant,
}

/// Which file is written.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub folder: &'a Path,
    pub name: &'a str,
    /// Of the texts.
    pub identity: &'a str,
}

/// `unchanged` fails if the texts are no longer those that the file is named by.
pub(super) fn write(
    to: Target<'_>,
    texts: &dyn Texts,
    tokenizer: &Tokenizer,
    unchanged: &dyn Fn() -> Result<()>,
    say: &mut dyn FnMut(&str),
) -> Result<()> {
    let Target { folder, name, .. } = to;
    let mut writer = Writer::new(to, tokenizer)?;
    let place = texts.place();
    let Place { document, offset } = writer.progress.next;
    let doing = if texts.are_tokens() { "reading its tokens" } else { "tokenising" };
    match writer.before {
        0 => say(&format!("{place}: {doing}")),
        done => say(&format!("{place}: {doing} goes on after {}", megabytes(done))),
    }
    let mut pieces = Pieces::new(tokenizer, writer.progress.next);
    texts.read(document, offset, &mut |chunk| {
        pieces.add(chunk, &place, &mut |piece| writer.add(piece, &place, say))
    })?;
    writer.flush(&place)?;
    if let Err(e) = unchanged() {
        let _ = fs::remove_file(&writer.path);
        let _ = fs::remove_file(&writer.progress_path);
        return Err(e);
    }
    writer.file.sync_all().doing("write", &writer.path)?;
    let target = tokens_path(folder, name);
    fs::rename(&writer.path, &target).doing("create", &target)?;
    let written = writer.progress.written;
    let summary = serde_json::to_vec(&written).map_err(|e| Error::internal(e.to_string()))?;
    write_atomically(&summary_path(folder, name), &summary)?;
    let _ = fs::remove_file(&writer.progress_path);
    let documents = count(written.documents as usize, "document");
    let tokens = count(written.tokens as usize, "token");
    say(&match texts.are_tokens() {
        true => format!("{place}: {documents} of {tokens}, {}", writer.speed()),
        false => {
            let size = megabytes(written.bytes);
            format!("{place}: {size} of text in {documents} are {tokens}, {}", writer.speed())
        }
    });
    Ok(())
}

impl<'a> Writer<'a> {
    fn new(Target { folder, name, identity }: Target<'_>, tokenizer: &'a Tokenizer) -> Result<Self> {
        let [path, progress_path] =
            ["partial", "progress"].map(|extension| folder.join(format!("{name}.{extension}")));
        let saved: Option<Progress> =
            fs::read(&progress_path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let width = width_of(tokenizer.vocabulary_size());
        let mut file =
            File::options().write(true).create(true).truncate(false).open(&path).doing("create", &path)?;
        let there = file.metadata().doing("read", &path)?.len();
        let is_there = |progress: &Progress| {
            progress.identity == identity && there >= progress.written.tokens * width as u64
        };
        let written = Summary { width, ..Summary::default() };
        let begins = Progress { identity: identity.to_owned(), written, ..Progress::default() };
        let progress = saved.filter(is_there).unwrap_or(begins);
        let length = progress.written.tokens * width as u64;
        file.set_len(length).doing("write", &path)?;
        file.seek(SeekFrom::Start(length)).doing("write", &path)?;
        let threads = rayon::ThreadPoolBuilder::new().build();
        let threads = threads.map_err(|e| Error::io(format!("cannot start threads: {e}")))?;
        let (begun, before) = (Instant::now(), progress.written.bytes);
        Ok(Self {
            tokenizer,
            threads,
            file,
            path,
            progress_path,
            progress,
            batch: Vec::new(),
            filled: 0,
            begun,
            before,
            said: begun,
        })
    }

    fn add(&mut self, piece: Piece, place: &str, say: &mut dyn FnMut(&str)) -> Result<()> {
        self.filled += piece.part.size() + OF_A_PIECE;
        self.batch.push(piece);
        if self.filled < BATCH {
            return Ok(());
        }
        self.flush(place)?;
        if self.said.elapsed() >= SAY_EVERY {
            self.said = Instant::now();
            let done = megabytes(self.progress.written.bytes);
            say(&format!("{place}: {done} done, {}", self.speed()));
        }
        Ok(())
    }

    /// Writes the tokens of the batch, and how far they are.
    fn flush(&mut self, place: &str) -> Result<()> {
        self.filled = 0;
        let batch = std::mem::take(&mut self.batch);
        let tokenizer = self.tokenizer;
        let encode = |piece: &Piece| match &piece.part {
            OwnedPart::Text(text) => {
                let end = tokenizer.end().filter(|_| piece.ends);
                let tokens = tokenizer.encode(text)?;
                Ok(tokens.into_iter().chain(end).collect())
            }
            OwnedPart::Tokens(tokens) => Ok(tokens.clone()),
        };
        let encoded: Result<Vec<Vec<u32>>, String> =
            self.threads.install(|| batch.par_iter().map(encode).collect());
        let encoded = encoded.map_err(|why| Error::data(format!("{place}: {why}")))?;
        let written = &mut self.progress.written;
        let mut bytes = Vec::new();
        for (piece, tokens) in batch.iter().zip(encoded) {
            for token in &tokens {
                bytes.extend_from_slice(&token.to_le_bytes()[..written.width]);
            }
            written.tokens += tokens.len() as u64;
            written.bytes += piece.part.size() as u64;
            written.documents += u64::from(piece.ends);
            self.progress.next = piece.after;
        }
        self.file.write_all(&bytes).and_then(|()| self.file.sync_data()).doing("write", &self.path)?;
        let progress = serde_json::to_vec(&self.progress).map_err(|e| Error::internal(e.to_string()))?;
        write_atomically(&self.progress_path, &progress)
    }

    fn speed(&self) -> String {
        let bytes = self.progress.written.bytes - self.before;
        let rate = bytes as f64 / 1e6 / self.begun.elapsed().as_secs_f64().max(1e-9);
        format!("{rate:.1} MB/s with {}", count(self.threads.current_num_threads(), "thread"))
    }
}
