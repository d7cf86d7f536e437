//! `ddp-run tokenizer train FILES`: a tokenizer for `[tokenizer] path`.

use base::error::{Error, IoContext, Result};
use base::files::AtomicFile;
use data::{Tokenizer, train_tokenizer};
use std::io::Write;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Make a byte-level BPE, as GPT-2's is, from texts
    Train(TrainArgs),
}

#[derive(Clone, Debug, clap::Args)]
pub struct TrainArgs {
    /// Files of UTF-8 text, or JSON Lines (.jsonl)
    #[arg(required = true, value_name = "FILES")]
    pub files: Vec<PathBuf>,
    /// The most tokens, with 256 for single bytes and one that ends a document
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(257..=16_777_216))]
    pub vocab_size: u32,
    /// The field of the text in JSON Lines
    #[arg(long, value_name = "NAME", default_value = "text")]
    pub text: String,
    /// Where the tokenizer is written
    #[arg(long, value_name = "FILE", default_value = "tokenizer.json")]
    pub out: PathBuf,
    /// Replace the file
    #[arg(long)]
    pub force: bool,
}

/// Writes the file, and prints how many tokens there are.
///
/// # Errors
/// Exit 2: the file is there. 74: it can't be written. 78: a text can't be read.
pub fn run(args: &Args) -> Result<()> {
    let Command::Train(TrainArgs { files, vocab_size, text, out, force }) = &args.command;
    if out.exists() && !force {
        let what = format!("{} is there already", base::display::path(out));
        return Err(Error::usage(what).hint("`--force` replaces it, `--out` names another file"));
    }
    let json = train_tokenizer(files, text, *vocab_size as usize).map_err(Error::of_data)?;
    let (made, _) = Tokenizer::from_json(json.clone(), None).map_err(Error::internal)?;
    let done = AtomicFile::new(out).and_then(|mut draft| {
        draft.write_all(json.as_bytes())?;
        draft.put_synced()
    });
    done.doing("write", out)?;
    let few = if made.vocabulary_size() < *vocab_size as usize { "; the texts give no more" } else { "" };
    super::print(&format!("wrote {}: {} tokens{few}\n", base::display::path(out), made.vocabulary_size()))
}
