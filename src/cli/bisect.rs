//! `ddp-run bisect A B`: finds the first step and tensor at which two runs differ.

use super::runs::TextFormat;
use base::display::message;
use base::error::Result;
use job::registry::Registry;
use launch::{ExitCode, StopFlag};
use std::path::PathBuf;
use tools::bisect::{Question, bisect};
use tools::runs::of_argument;

/// Find the first step and tensor at which two runs differ; exits with 3 if they do
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A run's folder, or its name in `runs`
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Another one
    #[arg(value_name = "B")]
    pub b: PathBuf,
    /// Only compare what the folders have; train nothing again
    #[arg(long, conflicts_with = "until")]
    pub no_replay: bool,
    /// Replay both runs up to this step if the folders tell of no difference before it
    #[arg(long, value_name = "STEP", value_parser = clap::value_parser!(u64).range(1..))]
    pub until: Option<u64>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let [a, b] = [of_argument(&args.a)?, of_argument(&args.b)?];
    let question = Question { replays: !args.no_replay, until: args.until };
    let found = bisect(&a, &b, question, registry, stop);
    // A signal has its usual effect, now that nothing is left behind.
    stop.release();
    let found = found?;
    match args.format {
        TextFormat::Text => super::print(&message(&found.text()))?,
        TextFormat::Json => super::print(&format!("{:#}\n", found.json()))?,
    }
    Ok(if found.is_identical() { ExitCode::Done } else { ExitCode::Differ })
}
