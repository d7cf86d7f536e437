//! `ddp-run completions SHELL`.

use crate::error::Result;
use clap_complete::Shell;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script to standard output.
pub fn run(args: &Args) -> Result<()> {
    clap_complete::generate(args.shell, &mut super::command(), "ddp-run", &mut std::io::stdout());
    Ok(())
}
