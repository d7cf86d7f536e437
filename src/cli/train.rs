//! `ddp-run train SPEC`: resolves the plan and starts the run.

use super::spec_args::SpecArgs;
use crate::clusters::{self, Origin};
use crate::device;
use crate::error::{ExitCode, Result};
use crate::launch::logs::LogFormat;
use crate::launch::{JobHandoff, Nproc, StopFlag};
use crate::nodes::{NodeRange, RdzvEndpoint};
use crate::plan::WorldRequest;
use crate::registry::Registry;
use crate::start::start;
use crate::telemetry::ProgressMode;
use std::path::PathBuf;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub spec: SpecArgs,
    /// Worker processes on this machine: a number, `devices` (one per device, else one), `auto` (one per device, else per core), `gpu` or `cpu`
    #[arg(long, value_name = "N")]
    pub nproc_per_node: Option<Nproc>,
    /// Nodes of the run: a number, or MIN:MAX if nodes may join and leave
    #[arg(long, value_name = "N|MIN:MAX", env = "DDP_RUN_NNODES")]
    pub nnodes: Option<NodeRange>,
    /// This node's rank; node 0 hosts the rendezvous and writes the checkpoints
    #[arg(long, value_name = "N", env = "DDP_RUN_NODE_RANK")]
    pub node_rank: Option<usize>,
    /// Rendezvous of the nodes: HOST:PORT, tcp://HOST:PORT or file:///SHARED/PATH
    #[arg(long, value_name = "ENDPOINT", env = "DDP_RUN_RDZV_ENDPOINT")]
    pub rdzv_endpoint: Option<RdzvEndpoint>,
    /// Restarts after failures, without progress in between
    #[arg(long, value_name = "N")]
    pub max_restarts: Option<u32>,
    /// Where the run starts: `auto` (its newest valid checkpoint), `never` (from the beginning), or a checkpoint or run folder; a run
    /// that its launcher restarts resumes (DDP_RUN_ID identifies a run if the launcher does not)
    #[arg(long, value_name = "auto|never|PATH", default_value = "auto")]
    pub resume: String,
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
}

impl Args {
    /// The arguments that determine the role of this process.
    fn settings(&self) -> clusters::Settings {
        clusters::Settings {
            node_rank: self.node_rank,
            nnodes: self.nnodes,
            rdzv_endpoint: self.rdzv_endpoint.clone(),
            starter: clusters::starter_pid(),
        }
    }

    /// The spec with all overrides, including those of flags for single keys and of a launcher of nodes.
    pub fn spec(&self, origin: &Origin, nproc: Option<Nproc>) -> SpecArgs {
        let mut spec = self.spec.clone();
        let (nnodes, endpoint) = match origin {
            Origin::Node(node) => (node.nnodes, &node.endpoint),
            Origin::Own | Origin::Worker(_) => (self.nnodes, &self.rdzv_endpoint),
        };
        let mut set = |key: &str, value: Option<String>| {
            spec.overrides.set.extend(value.map(|value| format!("{key}={value}")));
        };
        set("device", self.device.as_ref().map(|d| format!("{d:?}")));
        set("launch.nnodes", nnodes.map(|n| if n.is_elastic() { format!("\"{n}\"") } else { n.to_string() }));
        set("launch.rdzv_endpoint", endpoint.as_ref().map(|e| format!("{:?}", e.to_string())));
        set("launch.nproc_per_node", nproc.map(|n| n.to_string()));
        set("launch.max_restarts", self.max_restarts.map(|n| n.to_string()));
        spec
    }
}

pub fn run(args: &Args, registry: &Registry, stop: &StopFlag) -> Result<ExitCode> {
    let origin = clusters::detect(&|name| std::env::var(name).ok(), &args.settings())?;
    let nproc = match args.nproc_per_node {
        Some(n) => Some(n),
        None => origin.nproc(&|name| std::env::var(name).ok())?,
    };
    let request = WorldRequest {
        world_size: match &origin {
            Origin::Worker(worker) => Some(worker.place.world_size),
            Origin::Own | Origin::Node(_) => None,
        },
        devices: device::count,
        ..WorldRequest::default()
    };
    let plan = args.spec(&origin, nproc).plan(registry, request)?;
    let job = JobHandoff {
        spec_name: args.spec.spec.display().to_string(),
        job_toml: plan.to_toml(),
        set: plan.set_values(),
        resume: args.resume.clone(),
        log_format: args.log_format,
        progress: args.progress,
        ..JobHandoff::default()
    };
    start(&plan, job, args.out.clone(), origin, args.node_rank, stop)
}
