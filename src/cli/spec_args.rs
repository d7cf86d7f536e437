//! The common arguments of subcommands that read a spec: the spec and its overrides; and the plan that results.

use job::plan::{Plan, WorldRequest};
use job::registry::Registry;
use spec::{Diagnostics, JobTree, Override};
use std::path::{Path, PathBuf};

/// Edits of a spec, checked like the spec itself. All `--unset` come before all `--set`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OverrideArgs {
    /// Set a value, as in `--set optimizer.lr=1e-3`; the value is TOML, and a bare word is a string
    #[arg(long = "set", value_name = "KEY=VALUE", action = clap::ArgAction::Append)]
    pub set: Vec<String>,
    /// Remove a value that the spec or its base sets, as in `--unset scheduler`
    #[arg(long = "unset", value_name = "KEY", action = clap::ArgAction::Append)]
    pub unset: Vec<String>,
    /// From flags for single keys, and variables; they win over `--set`.
    #[arg(skip)]
    pub given: Vec<Override>,
}

impl OverrideArgs {
    /// Reads `spec`, applies the overrides, and resolves the plan.
    ///
    /// # Errors
    /// The spec can't be read or is invalid (exit 78).
    pub fn plan(&self, spec: &Path, registry: &Registry, request: WorldRequest) -> Result<Plan, Diagnostics> {
        Plan::resolve(&JobTree::load(spec, &self.edits())?, registry, request)
    }

    /// In the order in which they apply.
    pub fn edits(&self) -> Vec<Override> {
        let unset = self.unset.iter().cloned().map(Override::Unset);
        let set = self.set.iter().cloned().map(Override::Set);
        unset.chain(set).chain(self.given.iter().cloned()).collect()
    }
}

/// A spec and its edits.
#[derive(Clone, Debug, clap::Args)]
pub struct SpecArgs {
    /// The job spec; `-` reads it from standard input
    #[arg(value_name = "SPEC")]
    pub spec: PathBuf,
    #[command(flatten)]
    pub overrides: OverrideArgs,
}

impl SpecArgs {
    /// See [`OverrideArgs::plan`].
    pub fn plan(&self, registry: &Registry, request: WorldRequest) -> Result<Plan, Diagnostics> {
        self.overrides.plan(&self.spec, registry, request)
    }
}
