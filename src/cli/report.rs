//! `ddp-run report RUN`: writes the run's `report.html` again from its folder.

use crate::error::{Error, ExitCode, Result};
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
            "{} is not a run folder: it has no metrics.jsonl",
            args.run.display()
        )));
    }
    let written = report::write(&args.run).map_err(|e| Error {
        // The files belong to a run's folder.
        code: ExitCode::Checkpoint,
        ..e
    })?;
    super::print(&format!("{}\n", written.display()))
}
