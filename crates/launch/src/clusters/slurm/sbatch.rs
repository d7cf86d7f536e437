//! Generates a batch script for Slurm. Runs nothing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::clusters::shell::quoted;
use base::named;

named! {
    /// The program that starts the ranks.
    pub enum Launcher {
        /// `srun`: one task per rank.
        Srun = "srun",
        /// ddp-run's own supervisor, one per node, which restarts failed workers.
        Supervisor = "supervisor",
    }
}

impl FromStr for Launcher {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| "expected `srun` or `supervisor`".to_owned())
    }
}

/// `#SBATCH --time` in Slurm's formats: `MIN`, `MIN:SEC`, `H:MIN:SEC`, `DAYS-H`, `DAYS-H:MIN` or `DAYS-H:MIN:SEC`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeLimit {
    text: String,
    /// The time as a duration.
    pub length: Duration,
}

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected minutes, H:MM:SS or DAYS-H:MM:SS, as `sbatch --time` takes it".to_owned();
        let number = |t: &str| t.parse::<u64>().ok().filter(|n| *n < 1 << 32 && !t.starts_with('+'));
        let numbers = |t: &str| t.split(':').map(number).collect::<Option<Vec<u64>>>();
        let (days, clock) = match text.split_once('-') {
            Some((days, clock)) => (Some(number(days).ok_or_else(wrong)?), clock),
            None => (None, text),
        };
        let seconds = match (days, numbers(clock).ok_or_else(wrong)?.as_slice()) {
            (None, [m]) => m * 60,
            (None, [m, s]) => m * 60 + s,
            (None, [h, m, s]) => (h * 60 + m) * 60 + s,
            (Some(d), [h]) => (d * 24 + h) * 3600,
            (Some(d), [h, m]) => (d * 24 + h) * 3600 + m * 60,
            (Some(d), [h, m, s]) => (d * 24 + h) * 3600 + m * 60 + s,
            _ => return Err(wrong()),
        };
        if seconds == 0 {
            return Err(wrong());
        }
        Ok(Self { text: text.to_owned(), length: Duration::from_secs(seconds) })
    }
}

/// A batch script; [`Display`](fmt::Display) generates its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sbatch {
    /// The job's name.
    pub name: String,
    /// `srun` starts every rank, or the supervisor of each node.
    pub launcher: Launcher,
    /// Number of nodes.
    pub nodes: usize,
    /// Number of ranks on each node.
    pub ranks_per_node: usize,
    /// CPUs per rank.
    pub cpus_per_rank: Option<usize>,
    /// `--gpus-per-node`.
    pub gpus_per_node: Option<usize>,
    /// `--time`; the partition's default if not given.
    pub time: Option<TimeLimit>,
    /// `--partition`; the cluster's default if not given.
    pub partition: Option<String>,
    /// `--account`; the user's default if not given.
    pub account: Option<String>,
    /// Whether Slurm may restart the job; a restarted job appends to the same output.
    pub requeue: bool,
    /// Time between the signal to save and the time limit.
    pub signal_before: Duration,
    /// The job's output file.
    pub output: String,
    /// Further options of `sbatch`, each complete: `--qos=low`.
    pub options: Vec<String>,
    /// ddp-run's arguments.
    pub arguments: Vec<String>,
}

impl Sbatch {
    /// The `#SBATCH` options, in order.
    pub(crate) fn directives(&self) -> Vec<String> {
        let (tasks, cpus) = match self.launcher {
            Launcher::Srun => (self.ranks_per_node, self.cpus_per_rank),
            // One task, the supervisor, which divides its CPUs among the ranks.
            Launcher::Supervisor => (1, Some(self.cpus_per_rank.unwrap_or(1) * self.ranks_per_node)),
        };
        // `B:` signals only reach the process of the batch script; others only reach srun's tasks.
        let whom = if self.by_srun() { "" } else { "B:" };
        let mut all = vec![
            format!("--job-name={}", self.name),
            format!("--nodes={}", self.nodes),
            format!("--ntasks-per-node={tasks}"),
        ];
        all.extend(cpus.map(|n| format!("--cpus-per-task={n}")));
        all.extend(self.gpus_per_node.map(|n| format!("--gpus-per-node={n}")));
        all.extend(self.time.as_ref().map(|t| format!("--time={}", t.text)));
        all.extend(self.partition.as_ref().map(|p| format!("--partition={p}")));
        all.extend(self.account.as_ref().map(|a| format!("--account={a}")));
        all.push(format!("--output={}", self.output));
        all.push(format!("--signal={whom}USR1@{}", self.signal_before.as_secs()));
        match self.requeue {
            true => all.extend(["--requeue".to_owned(), "--open-mode=append".to_owned()]),
            false => all.push("--no-requeue".to_owned()),
        }
        all.extend(self.options.iter().cloned());
        all
    }

    fn by_srun(&self) -> bool {
        self.launcher == Launcher::Srun || self.nodes > 1
    }

    /// The last line, which replaces the batch script's process with the launcher.
    pub fn command(&self) -> String {
        let srun = if self.by_srun() { "srun " } else { "" };
        let words: Vec<String> = self.arguments.iter().map(|w| quoted(w)).collect();
        let mut command = format!("exec {srun}\"${{DDP_RUN:-ddp-run}}\" {}", words.join(" "));
        if self.launcher == Launcher::Supervisor && self.nodes > 1 {
            command += &format!(" --nnodes {} --rdzv-endpoint \"$first:$port\"", self.nodes);
        }
        command
    }
}

const HEAD: &str = "#!/bin/bash
# Generated by `ddp-run submit slurm`. Submit it with `sbatch FILE`, from the folder that relative paths of the spec
# refer to. The folder of --output must exist.
";
const CPUS: &str = "\
# Since Slurm 22.05, srun does not inherit --cpus-per-task from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
";
const EXEC: &str = "\
# exec: the signals that end a job would kill a waiting shell, and so end the job before the ranks have saved.
";

impl fmt::Display for Sbatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        for directive in self.directives() {
            writeln!(f, "#SBATCH {directive}")?;
        }
        writeln!(f, "set -euo pipefail")?;
        if self.by_srun() {
            f.write_str(CPUS)?;
        }
        if self.launcher == Launcher::Supervisor && self.nodes > 1 {
            writeln!(
                f,
                "# The supervisors connect to the first node, on a port derived from the job's number."
            )?;
            writeln!(f, "first=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)")?;
            writeln!(f, "port=$((15000 + SLURM_JOB_ID % 16000))")?;
        }
        f.write_str(EXEC)?;
        writeln!(f, "{}", self.command())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_limits_are_read_as_slurm_reads_them() {
        let seconds = |text: &str| text.parse::<TimeLimit>().map(|t| t.length.as_secs());
        let known = [
            ("90", 5400),
            ("1:30", 90),
            ("2:00:00", 7200),
            ("1-0", 86400),
            ("1-2:30", 95400),
            ("2-1:0:1", 176_401),
        ];
        for (text, expected) in known {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for wrong in ["", "0", "2h", "1:2:3:4", "-5", "1-", "1-2-3", "+5", "99999999999999999999"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
