//! `ddp-run submit slurm SPEC`: the batch script.

use super::{Command, JobArgs, one_line};
use crate::cli::spec_args::SpecArgs;
use base::error::{Error, IoContext, Result};
use ddp::device::DeviceSpec;
use job::plan::Plan;
use job::registry::Registry;
use launch::Nproc;
use launch::clusters::slurm::{Launcher, Sbatch, TimeLimit};
use spec::duration;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// CPUs of each rank [default: the spec's `launch.threads`, else Slurm's own default]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    cpus_per_rank: Option<u32>,
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
}

const SBATCH: Command =
    Command { words: &["sbatch"], standard_input: None, place: "a login node of the cluster" };

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
    let (sbatch, out_dir) = args.script(registry)?;
    if args.job.is_delivered() {
        // If Slurm can't create the output file, the job fails without a message.
        std::fs::create_dir_all(&out_dir).doing("create", &out_dir)?;
    }
    args.job.deliver(&sbatch.to_string(), &SBATCH)
}

impl Args {
    /// The script and the run's folder.
    fn script(&self, registry: &Registry) -> Result<(Sbatch, PathBuf)> {
        let mut spec = self.job.spec.clone();
        if self.requeue {
            spec.overrides.set.push("launch.requeue=true".into());
        }
        let plan = self.job.plan(&spec, registry)?;
        let ranks = self.job.ranks(&plan, "Slurm")?;
        let nodes = self.job.count_nodes(&plan, "Slurm")?;
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
            gpus_per_node: self.job.gpus_per_node.map(|n| n as usize).or(cuda),
            time: self.time.clone(),
            partition: self.partition.clone(),
            account: self.account.clone(),
            requeue: plan.slurm.requeue,
            signal_before: self.signal_before,
            output: one_line(&self.output(&plan, &out_dir))?,
            options: self.option.clone(),
            arguments: self.arguments(&spec, launcher)?,
        };
        Ok((sbatch, out_dir))
    }

    /// Where Slurm writes the job's output: a folder that exists when the job starts. A script on standard output creates none, and its
    /// output is in the folder in which it is submitted.
    fn output(&self, plan: &Plan, out_dir: &Path) -> PathBuf {
        match self.job.is_delivered() {
            true => out_dir.join("slurm-%j.out"),
            false => format!("{}-%j.out", plan.name).into(),
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
            && let Some(Nproc::Count(n)) = self.job.nproc_per_node
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

#[cfg(test)]
#[path = "slurm_tests.rs"]
mod tests;
