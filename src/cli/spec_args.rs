//! What every subcommand that reads a spec takes: the spec, and edits of it.

use crate::error::Error;
use crate::spec::{JobTree, Override};
use std::path::PathBuf;

/// Edits of a spec, checked like the spec itself. All `--unset` come before all `--set`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OverrideArgs {
    /// Set a value, as in `--set optimizer.lr=1e-3`; the value is TOML, and a bare word is a string
    #[arg(long = "set", value_name = "KEY=VALUE", action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Remove a value that the spec or its base sets, as in `--unset scheduler`
    #[arg(long = "unset", value_name = "KEY", action = clap::ArgAction::Append)]
    pub unset: Vec<String>,
}

impl OverrideArgs {
    pub fn edits(&self) -> Vec<Override> {
        let unset = self.unset.iter().cloned().map(Override::Unset);
        unset.chain(self.set.iter().cloned().map(Override::Set)).collect()
    }
}

/// A spec and its edits.
#[derive(Clone, Debug, clap::Args)]
pub struct SpecArgs {
    /// The job spec
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

impl SpecArgs {
    /// Reads the spec and lays the edits over it.
    ///
    /// # Errors
    /// A spec that can't be read (exit 78).
    pub fn load(&self) -> Result<JobTree, Error> {
        Ok(JobTree::load(&self.spec, &self.overrides.edits())?)
    }
}
