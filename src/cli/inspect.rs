//! `ddp-run inspect`: shows the content of a checkpoint, a run or a weight file.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use base::display;
use base::error::{Error, Result};
use checkpoint::inspect;

#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// A checkpoint (`runs/<name>/checkpoints/step-…`), a run folder, or a .safetensors, .pt or .pth file
    pub path: PathBuf,
    /// How to print it
    #[arg(long, value_enum, default_value_t = InspectFormat::Text)]
    pub format: InspectFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InspectFormat {
    Text,
    Json,
}

/// Prints the inspection to standard output.
///
/// # Errors
/// Exit code 74: there is nothing to inspect; also, after printing, if a checkpoint given by its path does not
/// verify, so that a script can use `ddp-run inspect` to test a checkpoint.
pub fn run(args: &InspectArgs) -> Result<()> {
    let seen = inspect(&args.path)?;
    let text = match args.format {
        InspectFormat::Text => display::message(&seen.to_string()).into_owned(),
        InspectFormat::Json => seen.to_json()? + "\n",
    };
    super::print(&text)?;
    match seen.problem() {
        Some((path, why)) => {
            Err(Error::checkpoint(format!("{} is not a verified checkpoint: {why}", path.display())))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_exit_code_74() {
        let args = InspectArgs { path: "/nonexistent/run".into(), format: InspectFormat::Text };
        assert_eq!(run(&args).unwrap_err().kind, base::error::ErrorKind::Io);
    }
}
