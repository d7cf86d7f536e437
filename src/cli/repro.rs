//! `ddp-run repro RUN`: whether a run can be repeated to the bit, and what has changed since.

use super::runs::TextFormat;
use base::display::message;
use base::error::Result;
use job::registry::Registry;
use launch::{ExitCode, StopFlag};
use std::path::PathBuf;
use tools::repro::{ReproReport, Request, run as repeat};
use tools::runs::of_argument;

/// Repeat a run and compare it to the bit, and with what it recorded of program, data and machine; exits with 1 where they differ
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A run's folder, or its name in `runs`
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Repeat the first N steps, rounded up to a step that is recorded [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub steps: Option<u64>,
    /// Keep the files of the repetition in this folder, which is new or empty [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only compare what is recorded with the present, and repeat nothing
    #[arg(long, conflicts_with_all = ["steps", "out"])]
    pub checks_only: bool,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// Prints what has changed, then the verdict.
///
/// # Errors
/// The run can't be read (74), or its repetition fails.
pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let request = Request {
        run: of_argument(&args.run)?,
        steps: args.steps,
        out: args.out.clone(),
        checks_only: args.checks_only,
        stop: stop.clone(),
    };
    let text = args.format == TextFormat::Text;
    let mut printed = Ok(());
    let done = repeat(&request, registry, &mut |heading| {
        if text {
            printed = super::print(&message(heading));
        }
    });
    // A signal has its usual effect, now that nothing is left behind.
    stop.release();
    let report = done?;
    printed?;
    super::print(&match text {
        true => message(&report.verdict()).into_owned(),
        false => format!("{:#}\n", report.json()),
    })?;
    Ok(code(&report))
}

/// 0 if all that was compared is the same; without a repetition, if nothing differs that may change results.
fn code(report: &ReproReport) -> ExitCode {
    let same = match report.compared {
        Some(_) => report.is_identical(),
        None => !report.checks.iter().any(|check| check.matters()),
    };
    if same { ExitCode::Done } else { ExitCode::Unmet }
}
