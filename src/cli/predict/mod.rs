//! `ddp-run predict RUN|CHECKPOINT INPUT…`: what a checkpoint's model says to images, rows of tables and texts.

mod inputs;
mod lines;
mod out;
mod text;

use super::outputs::destroys_nothing;
use super::used::Used;
use base::error::{Error, Result};
use data::Encoding;
use ddp::device::{self, DeviceSpec, of_rank};
use job::registry::Registry;
use job::worker::{Predictor, RankParts, keep_kernels};
use std::path::{Path, PathBuf};

/// Apply a checkpoint's model to images, rows of tables or texts
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A run's folder, or a checkpoint
    #[arg(value_name = "RUN|CHECKPOINT")]
    pub run: PathBuf,
    /// Images and folders of them (PNG, JPEG); CSV files with a header; or files with prompts (`-`: standard input)
    #[arg(value_name = "INPUT")]
    pub inputs: Vec<PathBuf>,
    /// The run's checkpoint: a path, `best` (by `checkpoint.best`) or `last` [default: last]
    #[arg(long, value_name = "PATH|best|last")]
    pub checkpoint: Option<PathBuf>,
    /// Write JSON lines to this file, or a table if it ends in `.csv` (`-`: JSON lines to standard output) [default: standard output;
    /// lines for a person on a terminal]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Inputs per forward pass [default: the spec's batch_size]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub batch_size: Option<u32>,
    /// Overrides the spec's device: `auto`, `cpu`, `cuda`, `cuda:N`, `wgpu`, `wgpu:N`
    #[arg(long, value_parser = parse_device)]
    pub device: Option<DeviceSpec>,
    /// Classes listed in `top`, the most probable ones; 0 leaves the list out
    #[arg(long, value_name = "K", default_value_t = 5)]
    pub top: usize,
    /// Add the model's outputs before the softmax, in the order of the classes
    #[arg(long)]
    pub logits: bool,
    /// Use the weights of the last step, not their average (`[ema]`)
    #[arg(long)]
    pub no_ema: bool,
    #[command(flatten)]
    pub text: text::TextArgs,
}

fn parse_device(text: &str) -> Result<DeviceSpec, String> {
    DeviceSpec::parse(text)
        .ok_or_else(|| "expected `auto`, `cpu`, `cuda`, `cuda:N`, `wgpu` or `wgpu:N`".to_owned())
}

/// Prints a JSON object per input, or continues texts.
///
/// # Errors
/// Exit 74: there is no such checkpoint. 78: some inputs can't be used, each of which has a line about it; or the model can't be
/// used in this way.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    if let Some(out) = args.out.as_deref().filter(|out| *out != Path::new("-")) {
        let inputs: Vec<&Path> = args.inputs.iter().map(PathBuf::as_path).collect();
        destroys_nothing(out, &inputs)?;
    }
    let used = Used::open(&args.run, args.checkpoint.as_deref(), registry)?;
    used.loaded.warnings.iter().for_each(|warning| status!("warning: {warning}"));
    let spec = args.device.unwrap_or(used.plan.device);
    device::available(spec)?;
    let device = of_rank(spec, 0);
    keep_kernels(device, used.plan.precision, "predict");
    let Some(encoding) = &used.usage.encoding else {
        let what = format!(
            "data set `{}` does not say how inputs become samples, so its models can't predict",
            used.plan.dataset.name
        );
        return Err(Error::spec(what).hint("a data set of your own says it by `Dataset::encoding`"));
    };
    args.check(encoding)?;
    let predictor =
        Predictor::new(&RankParts::new(&used.plan), &used.usage, &used.loaded, !args.no_ema, device)?;
    match encoding {
        Encoding::Text(encoding) => text::run(args, encoding, &predictor),
        Encoding::Images(_) | Encoding::Table(_) => {
            let batch = args.batch_size.map_or(used.plan.batch_size, |n| n as usize);
            lines::run(args, encoding, &predictor, batch)
        }
    }
}

impl Args {
    /// The arguments are those of this kind of model, and there is something to predict.
    fn check(&self, encoding: &Encoding) -> Result<()> {
        let is_text = matches!(encoding, Encoding::Text(_));
        if !is_text && !self.text.prompt.is_empty() {
            return Err(Error::usage("--prompt is for models of texts, and this one takes other inputs"));
        }
        if self.logits && encoding.classes().is_none() {
            return Err(Error::usage("--logits is for models of classes, and this one has none"));
        }
        if self.inputs.is_empty() && self.text.prompt.is_empty() {
            let what = match encoding {
                Encoding::Images(_) => "images or folders of images",
                Encoding::Table(_) => "CSV files",
                Encoding::Text(_) => "`--prompt TEXT`, or files with prompts",
            };
            return Err(Error::usage(format!("there is nothing to predict: this model takes {what}")));
        }
        Ok(())
    }
}
