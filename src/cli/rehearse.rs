//! `ddp-run rehearse SPEC`: which faults a spec survives on this machine, by trials.

use super::runs::TextFormat;
use super::spec_args::SpecArgs;
use base::display::message;
use base::error::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use ddp::device;
use job::plan::WorldRequest;
use job::registry::Registry;
use job::start::available;
use launch::{ExitCode, Nproc, StopFlag};
use std::path::PathBuf;
use tools::rehearse::{LEAST_STEPS, Moment, Request, TrialEvent, run as rehearse};

/// Kill, stop and fill the disk of short runs of a spec, and say what it survives; exits with 1 if one ends otherwise
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Processes [default: the spec's]
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<Nproc>,
    /// Simulated nodes, for the loss of one [default: the spec's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub nnodes: Option<u16>,
    /// Optimizer steps of each run
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u64).range(LEAST_STEPS..=1000))]
    pub steps: u64,
    /// One fault of a kind
    #[arg(long)]
    pub quick: bool,
    /// Phases in which ranks fail, as in forward,save [default: all]; without evaluate and generate the runs do not evaluate
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_possible_values = true, value_parser = moment())]
    pub phases: Vec<Moment>,
    /// Play the trials in this folder, which is new or empty, and keep them [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How to print it
    #[arg(long, value_enum, default_value_t = TextFormat::Text)]
    pub format: TextFormat,
}

/// A phase by its name.
fn moment() -> impl TypedValueParser<Value = Moment> {
    let names = PossibleValuesParser::new(Moment::all().into_iter().map(Moment::name));
    names
        .try_map(|text| Moment::all().into_iter().find(|moment| moment.name() == text).ok_or("unknown phase"))
}

/// Prints a table line by line, or JSON at the end.
///
/// # Errors
/// The spec is invalid (78), or its run fails without a fault.
pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let request = WorldRequest {
        nproc_per_node: args.nproc_per_node,
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = args.spec.plan(registry, request)?;
    available(&plan)?;
    let request = Request {
        name: args.spec.spec.display().to_string(),
        quick: args.quick,
        moments: args.phases.clone(),
        steps: args.steps,
        nodes: args.nnodes.map_or(plan.world.nnodes, usize::from),
        out: args.out.clone(),
        stop: stop.clone(),
    };
    let text = args.format == TextFormat::Text;
    let done = rehearse(&plan, &request, &mut |told| match told {
        _ if !text => Ok(()),
        TrialEvent::Begins(setting) => super::print(&message(&setting.heading())),
        TrialEvent::TrialResult(tried) => super::print(&message(&tried.line())),
    });
    // A signal has its usual effect, now that nothing is left behind.
    stop.release();
    let report = done?;
    super::print(&match text {
        true => message(&report.verdict()).into_owned(),
        false => format!("{:#}\n", report.json()),
    })?;
    Ok(if report.survived() { ExitCode::Done } else { ExitCode::Unmet })
}
