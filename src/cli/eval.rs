//! `ddp-run eval SPEC --checkpoint PATH`: the metrics of a checkpoint on one split, computed in this process.

use super::spec_args::SpecArgs;
use crate::comm::SoloGroup;
use crate::device::of_rank;
use crate::error::{Error, Result};
use crate::plan::WorldRequest;
use crate::registry::Registry;
use crate::start::available;
use crate::worker::{Split, evaluate, keep_kernels};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// A checkpoint or a run folder [default: runs/NAME, the run of the spec]
    #[arg(long, value_name = "PATH")]
    pub checkpoint: Option<PathBuf>,
    #[arg(long, value_enum, default_value_t = Split::Val)]
    pub split: Split,
    /// Evaluate the weights of the last step, not their average (`[ema]`)
    #[arg(long)]
    pub no_ema: bool,
}

/// Prints one JSON object to standard output.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let plan = args.spec.plan(registry, WorldRequest::of(1))?;
    let device = of_rank(plan.device, 0);
    keep_kernels(device, plan.precision, "eval");
    available(&plan)?;
    let run = Path::new("runs").join(&plan.name);
    let checkpoint = args.checkpoint.as_deref().unwrap_or(&run);
    let group = Arc::new(SoloGroup::default());
    let metrics = evaluate(&plan, checkpoint, args.split, !args.no_ema, device, group)?;
    let text = serde_json::to_string(&metrics).map_err(|e| Error::internal(e.to_string()))?;
    super::print(&format!("{text}\n"))
}
