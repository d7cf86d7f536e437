//! Texts as files of tokens in the cache, which are written once and read by position: a start does not depend on the size of a
//! text.
//!
//! A file is named by the digests of its text and its tokenizer; texts that have not changed since, by their size, times and
//! inode, are found without being read.

mod file;
mod pack;
mod pieces;
#[cfg(test)]
mod tests;
mod texts;
mod write;

pub use file::{TokenFile, TokenFiles};
pub use pack::{Pack, PackedRows, Packing};
pub use texts::{Chunk, Part, TextFiles, Texts, identity_of, is_json_lines, not_utf8};

use crate::Tokenizer;
use crate::store::{Cache, write_atomically};
use base::error::{Error, ErrorKind, IoContext, Result};
use data_encoding::HEXLOWER;
use file::Summary;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Of the format of files.
const VERSION: u32 = 1;

/// The tokens of `texts`, written if they are not in the cache yet. `say` receives one-line messages about that.
///
/// # Errors
/// A text can't be read or tokenised, or changes meanwhile; there is no cache, or the disk is full.
pub fn tokens(
    cache: &Cache,
    texts: &dyn Texts,
    tokenizer: &Tokenizer,
    say: &mut dyn FnMut(&str),
) -> Result<TokenFile> {
    let folder = cache.join("tokens")?;
    in_cache(&folder, texts, tokenizer, say).map_err(with_cache_hint)
}

/// The error about a file of the cache.
fn with_cache_hint(e: Error) -> Error {
    match (e.kind, &e.hint) {
        (ErrorKind::Io, None) => {
            e.hint("tokens are kept in the data set's cache: `[dataset] cache` names another folder")
        }
        _ => e,
    }
}

/// Waits until no other process holds the lock `name` of the cache. The kernel releases the lock of one that is killed.
fn locked(folder: &Path, name: &str) -> Result<File> {
    let lock = folder.join(format!("{name}.lock"));
    let lock = File::create(&lock).doing("create", &lock)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive)
        .map_err(|e| Error::io(format!("cannot lock {}: {e}", folder.display())))?;
    Ok(lock)
}

fn in_cache(
    folder: &Path,
    texts: &dyn Texts,
    tokenizer: &Tokenizer,
    say: &mut dyn FnMut(&str),
) -> Result<TokenFile> {
    let tokenised = HEXLOWER.encode(&tokenizer.digest()[..8]);
    let identity = texts.identity()?;
    let known = folder.join(format!("{identity}-{tokenised}.ref"));
    if let Some(file) = fs::read_to_string(&known).ok().and_then(|name| open(folder, name.trim())) {
        return Ok(file);
    }
    fs::create_dir_all(folder).doing("create", folder)?;
    let name = name(texts, tokenizer)?;
    let unchanged = || match texts.identity()? == identity {
        true => Ok(()),
        false => Err(Error::data(format!("{} has changed while it was tokenised", texts.place()))
            .hint("start again when nothing writes to it any more")),
    };
    let file = match open(folder, &name) {
        Some(file) => file,
        None => {
            // Another process may be writing it.
            let _lock = locked(folder, &name)?;
            if open(folder, &name).is_none() {
                let target = write::Target { folder, name: &name, identity: &identity };
                write::write(target, texts, tokenizer, &unchanged, say)?;
            }
            open(folder, &name).ok_or_else(|| {
                Error::io(format!("{} has disappeared", tokens_path(folder, &name).display()))
            })?
        }
    };
    unchanged()?;
    // Without it, the next start reads the text. The folder may be one that is only read.
    let _ = write_atomically(&known, name.as_bytes());
    Ok(file)
}

/// The name of the files for these texts, from all that they consist of.
fn name(texts: &dyn Texts, tokenizer: &Tokenizer) -> Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(format!("version {VERSION}\n"));
    hasher.update(tokenizer.digest());
    let (mut document, mut bytes) = (0, 0_u64);
    texts.read(0, 0, &mut |chunk: Chunk<'_>| {
        if chunk.document != document {
            hasher.update(format!("\0{document} {bytes}\n"));
            (document, bytes) = (chunk.document, 0);
        }
        match chunk.part {
            Part::Text(text) => {
                bytes += text.len() as u64;
                hasher.update(text);
            }
            Part::Tokens(tokens) => {
                hasher.update(format!("\0{} tokens\n", tokens.len()));
                tokens.iter().for_each(|token| hasher.update(token.to_le_bytes()));
            }
        }
        Ok(())
    })?;
    hasher.update(format!("\0{document} {bytes}\n"));
    Ok(HEXLOWER.encode(&hasher.finalize()))
}

fn tokens_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.tokens"))
}

/// Written when the tokens are complete.
fn summary_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

/// The tokens of this name, if all of them are there.
fn open(folder: &Path, name: &str) -> Option<TokenFile> {
    let summary: Summary = serde_json::from_slice(&fs::read(summary_path(folder, name)).ok()?).ok()?;
    let content = HEXLOWER.decode(name.as_bytes()).ok()?.try_into().ok()?;
    TokenFile::open(&tokens_path(folder, name), summary, content)
}
