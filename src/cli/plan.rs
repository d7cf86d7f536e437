//! `ddp-run plan SPEC`: shows the resolved plan, without a socket or the data. Devices are counted as `train` does, but none is opened.

use crate::device;
use crate::error::Error;
use crate::plan::WorldRequest;
use crate::registry::Registry;

/// Show the resolved plan of a job, without running it
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    // A command line can be tried with `plan` first; those flags count that edit the spec.
    #[command(flatten)]
    pub train: super::train::Args,
    /// Plan for this number of processes [default: from `[launch]`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub world: Option<u32>,
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    Text,
    Json,
    /// The resolved job, as a spec
    Toml,
}

/// Prints the plan.
///
/// # Errors
/// Exit 78: the spec is invalid.
pub fn run(args: &Args, registry: &Registry) -> Result<(), Error> {
    let world_size = args.world.map(|n| n as usize);
    let request = WorldRequest { world_size, devices: device::count, ..WorldRequest::default() };
    let resolved = args.train.resolved_for_plan(&|name| std::env::var(name).ok())?;
    let plan = resolved.spec.plan(registry, request)?;
    super::print(&match args.format {
        Format::Text => plan.text(),
        Format::Json => format!("{:#}\n", plan.json()),
        Format::Toml => plan.to_toml(),
    })
}
