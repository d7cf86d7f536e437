//! `ddp-run submit slurm SPEC`: prints the batch script for a spec, writes it to a file, or passes it to `sbatch`.

use super::spec_args::SpecArgs;
use crate::clusters::slurm::{Launcher, Sbatch, TimeLimit};
use crate::device::DeviceSpec;
use crate::error::{Error, ExitCode, IoContext, Result};
use crate::launch::Nproc;
use crate::plan::{Plan, WorldRequest};
use crate::registry::Registry;
use crate::spec::duration;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    scheduler: Scheduler,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Scheduler {
    /// Write the batch script of a spec for Slurm; `--submit` passes it to sbatch
    Slurm(SlurmArgs),
}

#[derive(Clone, Debug, clap::Args)]
struct SlurmArgs {
    #[command(flatten)]
    spec: SpecArgs,
    /// Nodes [default: the spec's `launch.nnodes`]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    nodes: Option<u32>,
    /// Ranks on each node [default: the spec's `launch.nproc_per_node`]
    #[arg(long, value_name = "N")]
    nproc_per_node: Option<Nproc>,
    /// CPUs of each rank [default: the spec's `launch.threads`, else Slurm's own default]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus_per_rank: Option<u32>,
    /// GPUs of each node [default: one per rank if the spec's `device` is "cuda", else none]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpus_per_node: Option<u32>,
    /// What starts the ranks: `srun` (each is a task), or `supervisor` (one task per node, which restarts failed ranks)
    /// [default: supervisor if `launch.max_restarts` is above 0, else srun]
    #[arg(long, value_name = "srun|supervisor")]
    launcher: Option<Launcher>,
    /// The time limit, as sbatch takes it: minutes, H:MM:SS or DAYS-H:MM:SS
    #[arg(long, value_name = "TIME")]
    time: Option<TimeLimit>,
    /// The partition to run in
    #[arg(long, value_name = "NAME", value_parser = name)]
    partition: Option<String>,
    /// The account to charge
    #[arg(long, value_name = "NAME", value_parser = name)]
    account: Option<String>,
    /// Requeue the job after a stop and resume from the checkpoint (`launch.requeue = true`)
    #[arg(long)]
    requeue: bool,
    /// How long before the time limit the ranks are asked to save and stop
    #[arg(long, value_name = "DURATION", default_value = "120s", value_parser = whole_seconds)]
    signal_before: Duration,
    /// Another option of sbatch, as in `--option=--qos=low`
    #[arg(long, value_name = "OPTION", value_parser = option)]
    option: Vec<String>,
    /// The run's folder [default: runs/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the script to a file
    #[arg(short = 'o', long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Submit the script with sbatch
    #[arg(long)]
    submit: bool,
}

/// A rank must stop this much earlier than Slurm's time limit.
const MARGIN: Duration = Duration::from_secs(10);

/// Validates the name of a partition or account: it must not contain another option.
fn name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_alphanumeric() || "_-.,".contains(c);
    let good = !text.is_empty() && !text.starts_with('-') && text.chars().all(plain);
    good.then(|| text.to_owned())
        .ok_or_else(|| "expected a name of letters, digits, `_`, `-`, `.` and `,`".to_owned())
}

fn option(text: &str) -> Result<String, String> {
    let good =
        text.starts_with("--") && text.len() > 2 && !text.contains(|c: char| c.is_control() || c == '#');
    good.then(|| text.to_owned()).ok_or_else(|| "expected one whole option, such as `--qos=low`".to_owned())
}

/// Slurm uses whole seconds, in 16 bits.
fn whole_seconds(text: &str) -> Result<Duration, String> {
    let bare = || text.parse().ok().map(Duration::from_secs);
    let found = bare().or_else(|| duration(text)).map(|d| d.as_secs());
    match found.filter(|s| (20..=65535).contains(s)) {
        Some(seconds) => Ok(Duration::from_secs(seconds)),
        None => Err("expected a time from 20 to 65535 seconds, such as `90s` or `5 min`".to_owned()),
    }
}

pub fn run(args: &Args, registry: &Registry) -> Result<()> {
    let Scheduler::Slurm(args) = &args.scheduler;
    let (sbatch, out_dir) = args.script(registry)?;
    let script = sbatch.to_string();
    if args.file.is_some() || args.submit {
        // If Slurm can't create the output file, the job fails without a message.
        std::fs::create_dir_all(&out_dir).doing("create", &out_dir)?;
    }
    match &args.file {
        Some(file) => std::fs::write(file, &script).doing("write", file)?,
        None if args.submit => {}
        None => super::print(&script)?,
    }
    match &args.file {
        _ if args.submit => submit(&script),
        Some(file) => super::print(&format!("wrote {0}; `sbatch {0}` submits it\n", file.display())),
        None => Ok(()),
    }
}

/// The script is passed over standard input, so that the submitted script is the generated one, whatever the file
/// contains by then.
fn submit(script: &str) -> Result<()> {
    let missing = |e: std::io::Error| {
        Error::unavailable(format!("cannot start sbatch: {e}"))
            .hint("submit from a login node of the cluster")
    };
    let mut sbatch = Command::new("sbatch").stdin(Stdio::piped()).spawn().map_err(missing)?;
    if let Some(mut pipe) = sbatch.stdin.take() {
        // If sbatch stops reading, it reports the reason itself.
        let _ = pipe.write_all(script.as_bytes());
    }
    let status = sbatch.wait().map_err(|e| Error::internal(format!("cannot wait for sbatch: {e}")))?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::new(ExitCode::Unavailable, format!("sbatch refused the job ({status})"))),
    }
}

impl SlurmArgs {
    /// The script and the run's folder.
    fn script(&self, registry: &Registry) -> Result<(Sbatch, PathBuf)> {
        let mut spec = self.spec.clone();
        if self.requeue {
            spec.overrides.set.push("launch.requeue=true".into());
        }
        let request = WorldRequest {
            nnodes: self.nodes.map(|n| n as usize),
            nproc_per_node: self.nproc_per_node,
            ..WorldRequest::default()
        };
        let plan = spec.plan(registry, request)?;
        let ranks = self.ranks(&plan)?;
        let nodes = self.count_nodes(&plan)?;
        let launcher = self.launcher(&plan);
        if let Some(limit) = self.time.as_ref().filter(|t| t.length <= self.signal_before) {
            let message = format!(
                "--signal-before {} s is not less than --time {} s",
                self.signal_before.as_secs(),
                limit.length.as_secs()
            );
            return Err(
                Error::usage(message).hint("the ranks would receive the signal as soon as they start")
            );
        }
        let grace = self.signal_before - MARGIN;
        if *plan.checkpoint.grace > grace {
            // With a longer grace period, Slurm would end the job before it has stopped and requested a requeue.
            spec.overrides.set.push(format!("checkpoint.grace={}", grace.as_secs()));
        }
        let out_dir = self.out.clone().unwrap_or_else(|| Path::new("runs").join(&plan.name));
        let cuda = matches!(plan.device, DeviceSpec::Cuda(_)).then_some(ranks);
        let sbatch = Sbatch {
            name: plan.name.clone(),
            launcher,
            nodes,
            ranks_per_node: ranks,
            cpus_per_rank: self.cpus_per_rank.map(|n| n as usize).or(plan.launch.threads),
            gpus_per_node: self.gpus_per_node.map(|n| n as usize).or(cuda),
            time: self.time.clone(),
            partition: self.partition.clone(),
            account: self.account.clone(),
            requeue: plan.slurm.requeue,
            signal_before: self.signal_before,
            output: one_line(&out_dir.join("slurm-%j.out"))?,
            options: self.option.clone(),
            arguments: self.arguments(&spec, launcher)?,
        };
        Ok((sbatch, out_dir))
    }

    /// "auto" would count the devices of the machine on which the script is written.
    fn ranks(&self, plan: &Plan) -> Result<usize> {
        match self.nproc_per_node.unwrap_or(plan.launch.nproc_per_node) {
            Nproc::Count(n) => Ok(n),
            Nproc::Devices => Ok(self.gpus_per_node.map_or(1, |n| n as usize)),
            Nproc::Auto | Nproc::Gpu | Nproc::Cpu => Err(Error::usage(
                "the spec leaves the number of ranks to the node, and Slurm has to know it before it starts the job",
            )
            .hint("`--nproc-per-node N` says it")),
        }
    }

    fn count_nodes(&self, plan: &Plan) -> Result<usize> {
        match self.nodes {
            Some(n) => Ok(n as usize),
            None if plan.nodes.nnodes.is_elastic() => Err(Error::usage(format!(
                "Slurm gives a job a fixed number of nodes, and `launch.nnodes` is \"{}\"",
                plan.nodes.nnodes
            ))
            .hint("`--nodes N` says how many")),
            None => Ok(plan.nodes.nnodes.max),
        }
    }

    fn launcher(&self, plan: &Plan) -> Launcher {
        let default = if plan.nodes.max_restarts > 0 { Launcher::Supervisor } else { Launcher::Srun };
        self.launcher.unwrap_or(default)
    }

    /// The arguments of ddp-run: the spec and its overrides.
    fn arguments(&self, spec: &SpecArgs, launcher: Launcher) -> Result<Vec<String>> {
        if spec.spec == Path::new("-") {
            return Err(Error::usage("a batch script needs a spec in a file, and `-` is standard input"));
        }
        let mut words = vec![one_line(&spec.spec)?];
        words.extend(spec.overrides.unset.iter().flat_map(|k| ["--unset".to_owned(), k.clone()]));
        words.extend(spec.overrides.set.iter().flat_map(|s| ["--set".to_owned(), s.clone()]));
        if launcher == Launcher::Supervisor
            && let Some(Nproc::Count(n)) = self.nproc_per_node
        {
            words.extend(["--nproc-per-node".to_owned(), n.to_string()]);
        }
        if let Some(out) = &self.out {
            words.extend(["--out".to_owned(), one_line(out)?]);
        }
        if !spec.spec.to_string_lossy().contains(['/', '.']) {
            words.insert(0, "train".to_owned());
        }
        Ok(words)
    }
}

/// A path that can be written in a script.
fn one_line(path: &Path) -> Result<String> {
    match path.to_str().filter(|p| !p.contains(|c: char| c.is_control())) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::usage(format!("the path {} can't be written in a batch script", path.display()))),
    }
}

#[cfg(test)]
#[path = "submit_tests.rs"]
mod tests;
