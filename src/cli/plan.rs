//! `ddp-run plan SPEC`: shows the resolved plan, without a socket, and without the data unless `--data` asks for it. Devices are counted as
//! `train` does, but none is opened. With a cluster, it predicts the job's time and cost there.

use super::outputs::destroys_nothing;
use base::error::{Error, Result};
use base::files;
use base::screen::columns_of_output;
use ddp::device;
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use job::worker::with_data;
use std::path::PathBuf;
use tools::forecast::{self, Cluster};

/// Show the resolved plan of a job, without running it, or predict its time and cost on a cluster
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    // A command line can be tried with `plan` first; those flags count that edit the spec.
    #[command(flatten)]
    pub train: super::train::Args,
    /// Plan for this number of processes [default: from `[launch]`]; with a cluster a list, as in 1,2,4,8
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub world: Vec<u32>,
    /// Open the data set, and show what only it tells: numbers of samples and steps, classes, sizes of the model, memory; downloads what
    /// `train` would
    #[arg(long)]
    pub data: bool,
    /// Predict step time, efficiency, checkpoint time and cost on the cluster that this file describes
    #[arg(long, value_name = "FILE")]
    pub cluster: Option<PathBuf>,
    /// Write the prediction to this file, for `ddp-run report --prediction`
    #[arg(long, value_name = "FILE", requires = "cluster")]
    pub prediction: Option<PathBuf>,
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

/// Prints the plan, or the prediction.
///
/// # Errors
/// Exit 78: the spec, or the cluster's file, is invalid; with `--data` also the data, and 74 where a file can't be read. Exit 2: numbers of
/// processes that do not fit.
pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    base::status::set_quiet(args.train.quiet);
    let resolved = args.train.resolved_for_plan(&|name| std::env::var(name).ok())?;
    let plan = |world_size: Option<usize>| -> Result<Plan> {
        let request =
            WorldRequest { world_size, devices: device::count, ..WorldRequest::default().to(Purpose::Start) };
        let plan = resolved.spec.plan(registry, request)?;
        if args.data { with_data(&plan) } else { Ok(plan) }
    };
    let mut worlds: Vec<usize> = args.world.iter().map(|n| *n as usize).collect();
    let Some(file) = &args.cluster else {
        if worlds.len() > 1 {
            let hint = "`--cluster FILE` predicts a job for several numbers of processes";
            return Err(Error::usage("--world: a plan is for one number of processes").hint(hint));
        }
        let plan = plan(worlds.first().copied())?;
        return super::print(&match args.format {
            Format::Text => plan.text(),
            Format::Json => format!("{:#}\n", plan.json()),
            Format::Toml if args.data => plan.to_toml() + &plan.toml_comments(),
            Format::Toml => plan.to_toml(),
        });
    };
    if args.format == Format::Toml {
        return Err(Error::usage("--format toml: a prediction is `text` or `json`"));
    }
    let cluster = Cluster::load(file)?;
    if worlds.is_empty() {
        worlds = cluster.worlds();
    }
    let prediction = forecast::predict(&cluster, &worlds, &|world| plan(Some(world)))?;
    if let Some(path) = &args.prediction {
        destroys_nothing(path, &[file])?;
        files::replace_json(path, &prediction)?;
    }
    super::print(&match args.format {
        Format::Text | Format::Toml => forecast::text(&prediction, columns_of_output()),
        Format::Json => {
            let text = serde_json::to_string_pretty(&prediction);
            text.map_err(|e| Error::internal(format!("cannot write the prediction as JSON: {e}")))? + "\n"
        }
    })
}
