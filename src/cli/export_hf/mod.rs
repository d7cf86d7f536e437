//! `ddp-run export RUN --hf DIR`: a folder as the Hugging Face hub has them: weights, configuration, model card.

mod card;
mod config;
mod loading;

use super::export::ExportArgs;
use super::used::Used;
use base::error::{Error, IoContext, Result};
use base::files::{TempPath, replace, sync_folder};
use checkpoint::{Dtype, ExportOptions, TensorMap, converted, is_shard, to_hub, write_shards};
use data::{Encoding, Tokenizer};
use job::registry::Registry;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// What is exported, and of which weights.
pub(super) struct Exported {
    pub used: Used,
    /// The weights are the averaged ones.
    pub averaged: bool,
    /// What transformers builds the model by, if it has such a model.
    pub published: Option<Map<String, Value>>,
    /// That of all floats, if they are converted.
    pub dtype: Option<Dtype>,
}

impl Exported {
    /// What gives the tokens of a text.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        match &self.used.usage.encoding {
            Some(Encoding::Text(text)) => Some(&text.tokenizer),
            _ => None,
        }
    }

    /// The metrics that were measured with these weights, by split; none are those of an average that is not exported.
    pub fn metrics(&self) -> Option<&Map<String, Value>> {
        let state = &self.used.loaded.state;
        let own = self.averaged || self.used.loaded.ema.is_empty();
        state.metrics.as_object().filter(|_| own)
    }
}

/// Writes the folder: it appears when it is whole. With `--force`, each file replaces the one of its name.
///
/// # Errors
/// Exit 2: DIR is not empty. 74: the checkpoint can't be read or a file can't be written. 78: its job names what this program lacks.
pub(super) fn run(args: &ExportArgs, dir: &Path, options: &ExportOptions, registry: &Registry) -> Result<()> {
    let filled = dir.exists() && fs::read_dir(dir).doing("list", dir)?.next().is_some();
    if filled && !args.force {
        let what = format!("{} is not empty", dir.display());
        return Err(Error::usage(what).hint(
            "`--force` replaces the files of the same names and leaves the others; or name another folder",
        ));
    }
    let used = Used::open(&args.checkpoint, args.of_run.as_deref(), registry)?;
    used.loaded.warnings.iter().for_each(|warning| status!("warning: {warning}"));
    let averaged = !options.no_ema && !used.loaded.ema.is_empty();
    let weights = converted(used.loaded.weights(averaged).clone(), options)?;
    let model = &used.plan.model.source;
    let published = model.config_json(&used.usage.facts);
    let weights = match &published {
        Some(_) => to_hub(weights, &|name| model.hub_tensor(name))?,
        None => weights,
    };
    let exported = Exported { used, averaged, published, dtype: options.dtype };
    let parent = base::files::folder(dir);
    fs::create_dir_all(parent).doing("create", parent)?;
    let scratch = TempPath::beside(dir).doing("write", dir)?;
    fs::create_dir(scratch.path()).doing("create", scratch.path())?;
    let names = write(scratch.path(), &exported, weights, args.max_shard_size)?;
    publish(scratch.path(), dir, &names).doing("write", dir)?;
    status!(
        "wrote {} ({}) from {} (step {}{})",
        base::display::path(dir),
        names.join(", "),
        base::display::path(&exported.used.loaded.path),
        exported.used.loaded.state.global_step,
        if averaged { ", averaged weights" } else { "" }
    );
    Ok(())
}

/// Writes all files, and returns their names.
fn write(folder: &Path, exported: &Exported, weights: TensorMap, shard: u64) -> Result<Vec<String>> {
    let mut files = vec![
        ("config.json", json(&config::config(exported))?),
        ("README.md", card::card(exported, &weights).into_bytes()),
    ];
    match &exported.used.usage.encoding {
        Some(Encoding::Images(images)) => {
            files.push(("preprocessor_config.json", json(&config::preprocessor(images))?));
        }
        Some(Encoding::Text(text)) => {
            if let Some(json_text) = text.tokenizer.json() {
                files.push(("tokenizer.json", json_text.as_bytes().to_vec()));
                files.push(("tokenizer_config.json", json(&config::tokenizer(text))?));
            }
            if let Some(template) = text.tokenizer.chat_template() {
                files.push(("chat_template.jinja", template.as_bytes().to_vec()));
            }
            if exported.published.is_some() && text.tokenizer.end().is_some() {
                files.push(("generation_config.json", json(&config::generation(&text.tokenizer))?));
            }
        }
        _ => {}
    }
    // The card's program reads the weights of other models from one file.
    let most = if exported.published.is_some() { shard } else { u64::MAX };
    let mut names = write_shards(folder, weights, most)?;
    for (name, bytes) in files {
        replace(&folder.join(name), &bytes)?;
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Bytes, as transformers writes them in `max_shard_size`: `5GB`, `500MB`, `1GiB`.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" | "B" => 1,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => 0,
    };
    let size = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    size.filter(|size| *size > 0).ok_or_else(|| "expected a size such as `5GB`, `500MB` or `1GiB`".to_owned())
}

fn json(value: &Value) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::internal(format!("the configuration is not JSON: {e}")))?;
    Ok((text + "\n").into_bytes())
}

/// Files that not every export has: those of an earlier one would be taken for parts of this one.
const OPTIONAL: [&str; 5] = [
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
];

/// Gives the written folder its name; if that is one already, its files are replaced one by one. What an earlier export has besides
/// them is removed.
fn publish(written: &Path, dir: &Path, names: &[String]) -> std::io::Result<()> {
    // An empty folder is replaced.
    if !dir.exists() || fs::remove_dir(dir).is_ok() {
        fs::rename(written, dir)?;
        return sync_folder(base::files::folder(dir));
    }
    for name in names {
        fs::rename(written.join(name), dir.join(name))?;
    }
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let is_stale =
            |name: &str| (is_shard(name) || OPTIONAL.contains(&name)) && names.iter().all(|new| new != name);
        if name.to_str().is_some_and(is_stale) {
            fs::remove_file(dir.join(name))?;
        }
    }
    sync_folder(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [("5GB", 5_000_000_000), ("3KiB", 3072), ("7", 7), ("2MB", 2_000_000)] {
            assert_eq!(parse_size(text), Ok(expected));
        }
        for text in ["", "GB", "0", "5gb", "-1", "1.5GB", "99999999999GiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }
}
