//! `ddp-run report RUN`: the run's `report.html`, made again from what its folder holds.

use crate::error::{Error, Result};
use crate::telemetry::report;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A run folder (`runs/<name>`)
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
}

pub fn run(args: &Args) -> Result<()> {
    if !args.run.join("metrics.jsonl").is_file() {
        return Err(Error::usage(format!(
            "{} is no run folder: it has no metrics.jsonl",
            args.run.display()
        )));
    }
    println!("{}", report::write(&args.run)?.display());
    Ok(())
}
