//! `ddp-run submit slurm|kubernetes SPEC`: prints what a cluster is asked to run, writes it to a file, or submits it.

mod kubernetes;
mod slurm;

use super::spec_args::SpecArgs;
use base::display;
use base::error::{Error, IoContext, Result};
use job::plan::{Plan, Purpose, WorldRequest};
use job::registry::Registry;
use launch::Nproc;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    scheduler: Scheduler,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Scheduler {
    /// Write the batch script of a spec for Slurm; `--submit` passes it to sbatch
    Slurm(slurm::Args),
    /// Write the manifest of a spec for Kubernetes, an Indexed Job; `--submit` passes it to kubectl
    Kubernetes(kubernetes::Args),
}

pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    match &args.scheduler {
        Scheduler::Slurm(args) => slurm::run(args, registry),
        Scheduler::Kubernetes(args) => kubernetes::run(args, registry),
    }
}

/// What every scheduler has to know of a job.
#[derive(Clone, Debug, clap::Args)]
struct JobArgs {
    #[command(flatten)]
    spec: SpecArgs,
    /// Nodes [default: the spec's `launch.nnodes`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    nodes: Option<u32>,
    /// Ranks on each node [default: the spec's `launch.nproc_per_node`]
    #[arg(long, value_name = "N")]
    nproc_per_node: Option<Nproc>,
    /// GPUs of each node [default: one per rank if the spec's `device` is "cuda", else none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpus_per_node: Option<u32>,
    /// Write it to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Submit it
    #[arg(long)]
    submit: bool,
}

impl JobArgs {
    fn plan(&self, spec: &SpecArgs, registry: &Registry) -> Result<Plan> {
        let request = WorldRequest {
            nnodes: self.nodes.map(|n| n as usize),
            nproc_per_node: self.nproc_per_node,
            ..WorldRequest::default().to(Purpose::Start)
        };
        Ok(spec.plan(registry, request)?)
    }

    /// Ranks of each node. "auto" would count the devices of the machine on which the job is written.
    fn ranks(&self, plan: &Plan, scheduler: &str) -> Result<usize> {
        match self.nproc_per_node.unwrap_or(plan.launch.nproc_per_node) {
            Nproc::Count(n) => Ok(n),
            Nproc::Devices => Ok(self.gpus_per_node.map_or(1, |n| n as usize)),
            Nproc::Auto | Nproc::Gpu | Nproc::Cpu => Err(Error::usage(format!(
                "the spec leaves the number of ranks to the node, and {scheduler} has to know it before it starts the job"
            ))
            .hint("`--nproc-per-node N` says it")),
        }
    }

    fn count_nodes(&self, plan: &Plan, scheduler: &str) -> Result<usize> {
        match self.nodes {
            Some(n) => Ok(n as usize),
            None if plan.nodes.nnodes.is_elastic() => Err(Error::usage(format!(
                "{scheduler} gives a job a fixed number of nodes, and `launch.nnodes` is \"{}\"",
                plan.nodes.nnodes
            ))
            .hint("`--nodes N` says how many")),
            None => Ok(plan.nodes.nnodes.max),
        }
    }

    /// Whether the job goes to a file or to the scheduler, not to standard output.
    fn is_delivered(&self) -> bool {
        self.file.is_some() || self.submit
    }

    /// Writes, prints or submits `text`.
    fn deliver(&self, text: &str, command: &Command) -> Result<()> {
        if let Some(file) = &self.file {
            std::fs::write(file, text).doing("write", file)?;
        }
        match &self.file {
            _ if self.submit => command.submit(text),
            Some(file) => {
                let (file, word) = (display::path(file), display::shell_word(file));
                super::print(&format!("wrote {file}; `{} {word}` submits it\n", command.words.join(" ")))
            }
            None => super::print(text),
        }
    }
}

/// The command that submits a file, whose name is its last argument.
struct Command {
    words: &'static [&'static str],
    /// Its last argument for standard input, if it needs one.
    standard_input: Option<&'static str>,
    /// Where it can be called.
    place: &'static str,
}

impl Command {
    /// The text is passed over standard input, so that what is submitted is what was generated, whatever a file contains by then.
    fn submit(&self, text: &str) -> Result<()> {
        let (program, arguments) = (self.words[0], &self.words[1..]);
        let missing = |e: std::io::Error| {
            Error::unavailable(format!("cannot start {program}: {e}"))
                .hint(format!("submit from {}", self.place))
        };
        let mut started = std::process::Command::new(program);
        started.args(arguments).args(self.standard_input).stdin(Stdio::piped());
        let mut child = started.spawn().map_err(missing)?;
        if let Some(mut pipe) = child.stdin.take() {
            // If it stops reading, it reports the reason itself.
            let _ = pipe.write_all(text.as_bytes());
        }
        let status = child.wait().map_err(|e| Error::internal(format!("cannot wait for {program}: {e}")))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::unavailable(format!("{program} refused the job ({status})"))),
        }
    }
}

/// A path that can be written in a script.
fn one_line(path: &Path) -> Result<String> {
    match path.to_str().filter(|p| !p.contains(|c: char| c.is_control())) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::usage(format!("the path {} can't be written in a script", path.display()))),
    }
}
