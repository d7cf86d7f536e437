//! `ddp-run lsp`: the language server for specs.

use super::spec_args::OverrideArgs;
use base::error::Result;
use job::registry::Registry;
use launch::ExitCode;

/// Serve an editor: problems, descriptions and completion of specs, by the Language Server Protocol
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub overrides: OverrideArgs,
    /// Standard input and output, as without it; some editors give the flag
    #[arg(long)]
    pub stdio: bool,
}

/// Serves one client on standard input and output.
pub fn run(args: &Args, registry: &Registry) -> Result<ExitCode> {
    if tools::lsp::serve(registry, args.overrides.edits()) {
        return Ok(ExitCode::Done);
    }
    // The protocol's code for an end that was not announced.
    base::status::flush();
    std::process::exit(1)
}
