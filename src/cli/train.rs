//! `ddp-run train SPEC`: resolves the plan and starts the run.

use super::spec_args::SpecArgs;
use base::error::Result;
use ddp::device;
use job::plan::WorldRequest;
use job::registry::Registry;
use job::start::{Start, start};
use job::worker::{JobHandoff, RankParts, measured};
use launch::clusters::{self, LaunchFlags, Origin, flags};
use launch::logs::{LogFormat, LogOptions, Verbosity};
use launch::{ExitCode, StopFlag};
use record::{Assertion, ProfileSteps, ProgressMode};
use spec::{Given, Override, shown_name};
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    #[command(flatten)]
    pub launch: LaunchFlags,
    /// Where the run starts: `auto` (its newest valid checkpoint), `never` (from the beginning), or a checkpoint or run folder; a run
    /// that its launcher restarts resumes (DDP_RUN_ID identifies a run if the launcher does not)
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    pub resume: String,
    /// Continue the run of the same name, or in the same folder, with a changed spec
    #[arg(long)]
    pub accept_changes: bool,
    /// The run's folder [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Overrides the spec's device: `auto`, `cpu`, `cuda`, `cuda:N`, `wgpu`, `wgpu:N`
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<String>,
    /// How the ranks' logs are written
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// How rank 0 shows progress
    #[arg(long, value_name = "KIND", value_enum, default_value_t)]
    pub progress: ProgressMode,
    /// Exit with 1 unless this holds of the last measured value, as in "val.accuracy >= 0.9" (also <=, >, <); repeatable
    #[arg(long = "assert", value_name = "CONDITION")]
    pub assertions: Vec<Assertion>,
    /// Record what each thread of each rank does: in STEPS steps (default 10) after two others, or in steps `100..120`; writes
    /// profile.json to the run's folder, for https://ui.perfetto.dev
    #[arg(long, value_name = "STEPS", num_args = 0..=1, require_equals = true, default_missing_value = "10")]
    pub profile: Option<ProfileSteps>,
    /// Log more; `-vv` also logs every step, phase and collective
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Show warnings and errors only
    #[arg(short, long, conflicts_with_all = ["verbose", "progress"])]
    pub quiet: bool,
}

/// The settings from flags, variables and the spec.
pub struct Resolved {
    pub origin: Origin,
    pub launch: LaunchFlags,
    pub spec: SpecArgs,
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Args {
    /// The role of this process, and all of its settings.
    ///
    /// # Errors
    /// Flags or variables are inconsistent (exit 2).
    pub fn resolved(&self, get: Get<'_>) -> Result<Resolved> {
        let settings = self.launch.settings(get, clusters::starter_pid())?;
        self.resolved_as(clusters::detect(get, &settings)?, settings, get)
    }

    /// The same for a plan, which is the same for every process: the role only matters where it is clear.
    pub fn resolved_for_plan(&self, get: Get<'_>) -> Result<Resolved> {
        let settings = self.launch.settings(get, clusters::starter_pid())?;
        self.resolved_as(clusters::detect(get, &settings).unwrap_or(Origin::Own), settings, get)
    }

    fn resolved_as(&self, origin: Origin, settings: clusters::Settings, get: Get<'_>) -> Result<Resolved> {
        let settings = match &origin {
            Origin::Worker(_) => settings,
            Origin::Own | Origin::Node(_) => clusters::completed(get, &settings)?,
        };
        let launch = self.launch.completed(&origin, get)?;
        let spec = self.spec(&settings, &launch, get);
        Ok(Resolved { origin, launch, spec })
    }

    /// The spec with all overrides, including those of flags and variables for single keys.
    fn spec(&self, settings: &clusters::Settings, launch: &LaunchFlags, get: Get<'_>) -> SpecArgs {
        let (mut spec, typed) = (self.spec.clone(), &self.launch);
        let mut give = |from: &str, key: &'static str, typed: Option<String>| {
            let given = typed.map(|typed| Given { from: from.to_owned(), key, toml: as_toml(&typed), typed });
            spec.overrides.given.extend(given.map(Override::Given));
        };
        give("--device", "device", self.device.clone());
        let nnodes = match (typed.standalone, settings.standalone) {
            (true, _) => "--standalone",
            (_, true) => "PET_STANDALONE",
            _ => flags::NNODES.source(typed.nnodes.is_some(), get),
        };
        give(nnodes, "launch.nnodes", settings.nnodes.map(|nodes| nodes.to_string()));
        let at = match typed.rdzv_endpoint.is_none()
            && (typed.master_addr.is_some() || typed.master_port.is_some())
        {
            true => "--master-addr",
            false => flags::RDZV_ENDPOINT.source(typed.rdzv_endpoint.is_some(), get),
        };
        let endpoint = settings.rdzv_endpoint.as_ref().map(ToString::to_string);
        give(at, "launch.rdzv_endpoint", endpoint);
        let nproc = flags::NPROC_PER_NODE.source(typed.nproc_per_node.is_some(), get);
        let each = launch.nproc_per_node.map(|n| n.to_string().trim_matches('"').to_owned());
        give(nproc, "launch.nproc_per_node", each);
        let restarts = flags::MAX_RESTARTS.source(typed.max_restarts.is_some(), get);
        give(restarts, "launch.max_restarts", launch.max_restarts.map(|n| n.to_string()));
        let join = launch.rdzv_conf.and_then(|conf| conf.join).map(|join| join.as_secs().to_string());
        let conf = flags::RDZV_CONF.source(typed.rdzv_conf.is_some(), get);
        give(conf, "distributed.init_timeout", join);
        spec
    }

    fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, 0) => Verbosity::Normal,
            (false, 1) => Verbosity::Verbose,
            (false, _) => Verbosity::Trace,
        }
    }
}

/// The value of a flag as TOML.
fn as_toml(typed: &str) -> String {
    match typed.parse::<u64>() {
        Ok(_) => typed.to_owned(),
        Err(_) => toml::Value::from(typed).to_string(),
    }
}

pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    base::status::set_quiet(args.quiet);
    args.launch.without_effect.warn();
    let Resolved { origin, launch, spec } = args.resolved(&|name| std::env::var(name).ok())?;
    let place = match &origin {
        Origin::Worker(worker) => Some(worker.place),
        Origin::Own | Origin::Node(_) => None,
    };
    let request = WorldRequest {
        world_size: place.map(|place| place.world_size),
        local: place.map(|place| place.local_world_size),
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = spec.plan(registry, request)?;
    measured(&RankParts::new(&plan), &args.assertions)?;
    if plan.sweep.is_some() && matches!(origin, Origin::Own) {
        status!("`[sweep]` is not used: this is one run, and `ddp-run sweep` starts all of them");
    }
    let job = JobHandoff {
        spec_name: shown_name(&args.spec.spec),
        job_toml: plan.to_toml(),
        set: plan.set_values(),
        resume: args.resume.clone(),
        accept_changes: args.accept_changes,
        log: LogOptions { format: args.log_format, verbosity: args.verbosity() },
        progress: if args.quiet { ProgressMode::None } else { args.progress },
        log_dir: launch.log_dir.as_ref().map(|dir| dir.join(&plan.name)),
        rdzv_id: launch.rdzv_id.clone().and_then(|id| id.0),
        profile: args.profile,
        ..JobHandoff::default()
    };
    start(
        &plan,
        job,
        Start { out: args.out.clone(), origin, launch, assertions: args.assertions.clone() },
        stop,
    )
}
