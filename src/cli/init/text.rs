//! `ddp-run init text [FILE]`: a character-level GPT on a text.

use super::{Output, commented, foreign, place, quoted, run_name, utf8};
use base::display::count;
use base::error::{Error, Result};
use data::read_text;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A character-level GPT on the text in FILE, by default Shakespeare's
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The text, in UTF-8; a single name that ends in `.toml` is PATH
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Args {
    /// The text, if one is given, and the file to write.
    pub fn paths(&self) -> (Option<&Path>, &Path) {
        let file = self.file.as_deref();
        let is_spec = |path: &&Path| {
            path.extension() == Some(OsStr::new("toml")) && self.output.path == Path::new(super::DEFAULT_PATH)
        };
        match file.filter(is_spec) {
            Some(spec) => (None, spec),
            None => (file, &self.output.path),
        }
    }
}

/// Characters that the model sees, unless the text is too short for it.
const BLOCK_SIZE: usize = 64;
const VAL_SPLIT: f64 = 0.1;

/// The spec, and what it took from the text.
///
/// # Errors
/// Exit 78: the text can't be read.
pub fn proposal(file: &Path) -> Result<(String, String)> {
    let path = utf8(file)?;
    let text = read_text(file).map_err(Error::of_data)?;
    let characters = text.chars().count();
    // The validation part, which is the smaller one, has several samples.
    let fits = (characters as f64 * VAL_SPLIT) as usize / 4;
    if fits == 0 {
        let what = format!("{} is too short: it has {}", foreign(path), count(characters, "character"));
        return Err(Error::data(what).hint("a model of texts needs thousands"));
    }
    let (block_size, why) = match fits {
        BLOCK_SIZE.. => (BLOCK_SIZE, "characters that the model sees"),
        _ => (fits, "characters that the model sees: the text is short"),
    };
    let dataset = vec![
        "[dataset]".to_owned(),
        "name = \"text\"".to_owned(),
        place("path", path),
        commented(&format!("block_size = {block_size}"), why),
        commented(&format!("val_split = {VAL_SPLIT}"), "the end of the text"),
    ];
    let about = format!(" ({})", count(characters, "character"));
    Ok((spec(&run_name(file), &format!("the text in {}", foreign(path)), dataset), about))
}

/// A character-level GPT, as in the template for Shakespeare's. `what` is the text, which `dataset` names.
pub fn spec(name: &str, what: &str, dataset: Vec<String>) -> String {
    let mut lines = vec![format!("# A character-level GPT on {what}."), super::WHERE_TO_LOOK.to_owned()];
    lines.extend(super::head(name, 100, 12));
    lines.extend(
        ["[model]", "name = \"gpt\"", "n_layer = 4", "n_head = 4", "n_embd = 128", ""].map(str::to_owned),
    );
    lines.extend(dataset);
    lines.extend([
        "\n[train]".to_owned(),
        commented("max_steps = 2000", "ends the run before its epochs do"),
        "clip_norm = 1.0".to_owned(),
    ]);
    let processes = (quoted("devices"), "one process a GPU; without any, one");
    let adamw = "lr = 1e-3\nbetas = [0.9, 0.99]\nweight_decay = 0.1\ndecay = \"matrices\"";
    lines.extend(super::tail(adamw, "val.loss", (&processes.0, processes.1)));
    lines.join("\n") + "\n"
}
