//! `ddp-run export`: writes a checkpoint's model as a safetensors file for other programs, as a folder for the Hugging Face
//! hub, or as a GGUF file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::export_gguf::{self, Element};
use super::export_hf;
use super::outputs::destroys_nothing;
use super::used::{Used, load_chosen};
use base::error::{Error, Result};
use checkpoint::{Dtype, ExportOptions, export};
use job::registry::Registry;

#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// A checkpoint, or a run folder (its newest checkpoint is taken)
    pub checkpoint: PathBuf,
    /// The .safetensors file to write
    #[arg(required_unless_present_any = ["hf", "gguf"], conflicts_with_all = ["hf", "gguf"])]
    pub out: Option<PathBuf>,
    /// Write a folder as the Hugging Face hub has them instead: weights, configuration and model card
    #[arg(long, value_name = "DIR")]
    pub hf: Option<PathBuf>,
    /// Write a GGUF file for llama.cpp and Ollama instead: weights, tokenizer and chat template
    #[arg(long, value_name = "FILE", conflicts_with_all = ["hf", "rename", "prefix"])]
    pub gguf: Option<PathBuf>,
    /// The run's checkpoint: a path, `best` (by `checkpoint.best`) or `last` [default: last]
    #[arg(long = "checkpoint", value_name = "PATH|best|last")]
    pub of_run: Option<PathBuf>,
    /// Write to DIR though it is not empty: an earlier export in it is replaced, other files stay
    #[arg(long, requires = "hf", conflicts_with = "out")]
    pub force: bool,
    /// Write larger weights as several files of at most this size, with an index
    #[arg(long, value_name = "SIZE", default_value = "5GB", value_parser = export_hf::parse_size, conflicts_with_all = ["out", "gguf"])]
    pub max_shard_size: u64,
    /// Names that start with OLD start with NEW instead; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename, conflicts_with = "hf")]
    pub rename: Vec<(String, String)>,
    /// Put before every name
    #[arg(long, default_value = "", hide_default_value = true, conflicts_with = "hf")]
    pub prefix: String,
    /// Round the weights to this type
    #[arg(long, value_enum)]
    pub dtype: Option<ExportDtype>,
    /// Write the weights of the last step, not their average (`[ema]`)
    #[arg(long)]
    pub no_ema: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ExportDtype {
    F32,
    F16,
    Bf16,
    /// 8 bits, and a factor for each 32 weights (`--gguf` only)
    #[value(name = "q8_0")]
    Q8_0,
}

fn parse_rename(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((old, new)) if !old.is_empty() => Ok((old.into(), new.into())),
        _ => Err("expected OLD=NEW, such as `layer1.=block1.`".into()),
    }
}

/// Exports, and reports on standard error what was written.
///
/// # Errors
/// Exit code 2: invalid names or types. 74: a file can't be read or written. 78: the format can't have the model.
pub fn run(args: &ExportArgs, registry: &Registry) -> Result<()> {
    if let Some(path) = &args.gguf {
        let element = match args.dtype {
            None | Some(ExportDtype::F32) => Element::F32,
            Some(ExportDtype::F16) => Element::F16,
            Some(ExportDtype::Bf16) => Element::Bf16,
            Some(ExportDtype::Q8_0) => Element::Q8_0,
        };
        return export_gguf::run(args, path, element, registry);
    }
    let dtype = match args.dtype {
        None => None,
        Some(ExportDtype::F32) => Some(Dtype::F32),
        Some(ExportDtype::F16) => Some(Dtype::F16),
        Some(ExportDtype::Bf16) => Some(Dtype::Bf16),
        Some(ExportDtype::Q8_0) => {
            let what = "`--dtype q8_0` is a type of GGUF files only";
            return Err(Error::usage(what).hint("`--gguf FILE` writes one"));
        }
    };
    let (rename, prefix) = (args.rename.clone(), args.prefix.clone());
    let options = ExportOptions { rename, prefix, dtype, no_ema: args.no_ema };
    if let Some(dir) = &args.hf {
        return export_hf::run(args, dir, &options, registry);
    }
    let Some(out) = &args.out else { return Err(Error::usage("the file to write is missing")) };
    destroys_nothing(out, &[&args.checkpoint])?;
    // Only `best` needs the run's job.
    let loaded = match args.of_run.as_deref() {
        Some(best) if best == Path::new("best") => Used::open(&args.checkpoint, Some(best), registry)?.loaded,
        chosen => load_chosen(&args.checkpoint, chosen)?,
    };
    let report = export(loaded, out, &options)?;
    for warning in &report.warnings {
        status!("warning: {warning}");
    }
    status!(
        "wrote {} ({} tensors, {} bytes) from {} (step {}{})",
        base::display::path(&report.path),
        report.tensors,
        report.bytes,
        base::display::path(&report.source),
        report.step,
        if report.averaged { ", averaged weights" } else { "" }
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: ExportArgs,
    }

    #[test]
    fn arguments() {
        let typed =
            ["export", "runs/toy", "m.safetensors", "--rename", "a.=b.", "--rename", "c=", "--dtype", "bf16"];
        let args = Cli::try_parse_from(typed).unwrap().args;
        assert_eq!(args.rename, [("a.".into(), "b.".into()), ("c".into(), String::new())]);
        assert_eq!((args.dtype, args.prefix.as_str()), (Some(ExportDtype::Bf16), ""));
        let args = Cli::try_parse_from(["export", "runs/toy", "--hf", "toy", "--force"]).unwrap().args;
        assert_eq!((args.out, args.hf, args.force), (None, Some("toy".into()), true));
        let args =
            Cli::try_parse_from(["export", "runs/toy", "m.safetensors", "--checkpoint", "best"]).unwrap();
        assert_eq!(args.args.of_run, Some("best".into()));
        let args = Cli::try_parse_from(["export", "a", "--gguf", "b", "--dtype", "q8_0"]).unwrap().args;
        assert_eq!((args.gguf, args.dtype), (Some("b".into()), Some(ExportDtype::Q8_0)));
        assert!(Cli::try_parse_from(["export", "a", "b", "--gguf", "c"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "--hf", "b", "--gguf", "c"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "--gguf", "c", "--prefix", "p"]).is_err());
        assert!(Cli::try_parse_from(["export", "a"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "b", "--hf", "c"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "--hf", "c", "--prefix", "p"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "b", "--force"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "b", "--rename", "=x"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "b", "--dtype", "i64"]).is_err());
    }
}
