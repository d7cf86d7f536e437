//! Makes a tokenizer from texts.

use crate::tokens::{TextFiles, Texts};
use base::error::{Error, Result};
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::{AddedToken, Tokenizer};

/// The token that ends a document.
const END: &str = "<|endoftext|>";

/// Lines that wait for the trainer.
const LINES: usize = 4096;

/// A byte-level BPE with at most `vocabulary_size` tokens, as GPT-2's is, from files of text or JSON Lines (whose texts are in `field`), as the
/// text of a `tokenizer.json`. Equal to what Python's `tokenizers` makes of the same lines.
///
/// # Errors
/// A file can't be read, or has no text.
pub fn train_tokenizer(files: &[PathBuf], field: &str, vocabulary_size: usize) -> Result<String> {
    let texts = TextFiles { paths: files.to_vec(), field: field.to_owned(), named: String::new() };
    let failed = |e: tokenizers::Error| Error::data(format!("no tokenizer could be made: {e}"));
    let mut tokenizer = Tokenizer::new(BPE::default());
    tokenizer.with_pre_tokenizer(Some(ByteLevel::new(false, true, true)));
    tokenizer.with_decoder(Some(ByteLevel::default()));
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocabulary_size)
        .special_tokens(vec![AddedToken::from(END, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut trainer = TrainerWrapper::BpeTrainer(trainer);
    let (send, lines) = sync_channel::<String>(LINES);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let send = send;
            let mut is_empty = true;
            let mut begun = String::new();
            texts.read(0, 0, &mut |chunk| {
                is_empty &= chunk.text().is_empty();
                let mut rest = chunk.text();
                while let Some(end) = rest.find('\n') {
                    let (line, behind) = rest.split_at(end + 1);
                    // The trainer has ended with an error of its own.
                    let _ = send.send(std::mem::take(&mut begun) + line);
                    rest = behind;
                }
                begun += rest;
                if chunk.ends && !begun.is_empty() {
                    let _ = send.send(std::mem::take(&mut begun));
                }
                Ok(())
            })?;
            match is_empty {
                true => Err(Error::data("the files have no text")),
                false => Ok(()),
            }
        });
        let trained = tokenizer.train(&mut trainer, lines.into_iter()).map(drop).map_err(failed);
        let read = reader.join().map_err(|_| Error::internal("reading texts panicked"))?;
        read.and(trained)
    })?;
    tokenizer.to_string(true).map_err(failed)
}
