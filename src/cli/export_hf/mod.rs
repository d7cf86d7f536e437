//! `ddp-run export RUN --hf DIR`: a folder as the Hugging Face hub has them: weights, configuration, model card.

mod card;
mod config;
mod loading;

use super::export::ExportArgs;
use super::used::Used;
use base::error::{Error, IoContext, Result};
use base::files::{AtomicFile, TempPath, sync_folder};
use checkpoint::{Dtype, ExportOptions, TensorMap, converted, tensor_file::write_tensors};
use data::{Encoding, Tokenizer};
use job::registry::Registry;
use serde_json::{Map, Value};
use std::fs;
use std::io::Write;
use std::path::Path;

/// What is exported, and of which weights.
pub(super) struct Exported {
    pub used: Used,
    /// The weights are the averaged ones.
    pub averaged: bool,
    /// The weights have other names than the model gives them.
    pub renamed: bool,
    /// That of all floats, if they are converted.
    pub dtype: Option<Dtype>,
}

impl Exported {
    /// What transformers builds the model by, if it has such a model.
    pub fn config_json(&self) -> Option<Map<String, Value>> {
        let of_model = || self.used.plan.model.source.config_json(&self.used.usage.facts);
        if self.renamed { None } else { of_model() }
    }

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
    let renamed = !options.rename.is_empty() || !options.prefix.is_empty();
    let exported = Exported { used, averaged, renamed, dtype: options.dtype };
    let parent = base::files::folder(dir);
    fs::create_dir_all(parent).doing("create", parent)?;
    let scratch = TempPath::beside(dir).doing("write", dir)?;
    fs::create_dir(scratch.path()).doing("create", scratch.path())?;
    let names = write(scratch.path(), &exported, &weights)?;
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
fn write(folder: &Path, exported: &Exported, weights: &TensorMap) -> Result<Vec<&'static str>> {
    let mut files = vec![
        ("config.json", json(&config::config(exported))?),
        ("README.md", card::card(exported, weights).into_bytes()),
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
            if exported.config_json().is_some() && text.tokenizer.end().is_some() {
                files.push(("generation_config.json", json(&config::generation(&text.tokenizer))?));
            }
        }
        _ => {}
    }
    let mut names = vec!["model.safetensors"];
    let model = folder.join(names[0]);
    let done = AtomicFile::new(&model).and_then(|mut draft| {
        write_tensors(weights, &mut draft)?;
        draft.put_synced()
    });
    done.doing("write", &model)?;
    for (name, bytes) in files {
        let path = folder.join(name);
        let done = AtomicFile::new(&path).and_then(|mut draft| {
            draft.write_all(&bytes)?;
            draft.put_synced()
        });
        done.doing("write", &path)?;
        names.push(name);
    }
    Ok(names)
}

fn json(value: &Value) -> Result<Vec<u8>> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::internal(format!("the configuration is not JSON: {e}")))?;
    Ok((text + "\n").into_bytes())
}

/// Gives the written folder its name; if that is one already, its files are replaced one by one.
fn publish(written: &Path, dir: &Path, names: &[&str]) -> std::io::Result<()> {
    // An empty folder is replaced.
    if !dir.exists() || fs::remove_dir(dir).is_ok() {
        fs::rename(written, dir)?;
        return sync_folder(base::files::folder(dir));
    }
    for name in names {
        fs::rename(written.join(name), dir.join(name))?;
    }
    sync_folder(dir)
}
