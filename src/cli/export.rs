//! `ddp-run export`: writes a checkpoint's model as a safetensors file for other programs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::checkpoint::{Dtype, ExportOptions, export};
use crate::error::Result;

#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// A checkpoint, or a run folder (its newest checkpoint is taken)
    pub checkpoint: PathBuf,
    /// The .safetensors file to write
    pub out: PathBuf,
    /// Names that start with OLD start with NEW instead; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_rename)]
    pub rename: Vec<(String, String)>,
    /// Put before every name
    #[arg(long, default_value = "", hide_default_value = true)]
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
/// Exit code 2: invalid names or types. 74: a file can't be read or written.
pub fn run(args: &ExportArgs) -> Result<()> {
    let dtype = args.dtype.map(|d| match d {
        ExportDtype::F32 => Dtype::F32,
        ExportDtype::F16 => Dtype::F16,
        ExportDtype::Bf16 => Dtype::Bf16,
    });
    let (rename, prefix) = (args.rename.clone(), args.prefix.clone());
    let options = ExportOptions { rename, prefix, dtype, no_ema: args.no_ema };
    let report = export(&args.checkpoint, &args.out, &options)?;
    for warning in &report.warnings {
        say!("warning: {warning}");
    }
    say!(
        "wrote {} ({} tensors, {} bytes) from {} (step {}{})",
        report.path.display(),
        report.tensors,
        report.bytes,
        report.source.display(),
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
        assert!(Cli::try_parse_from(["export", "a", "b", "--rename", "=x"]).is_err());
        assert!(Cli::try_parse_from(["export", "a", "b", "--dtype", "i64"]).is_err());
    }
}
