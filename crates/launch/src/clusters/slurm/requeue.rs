//! Requeues the Slurm job that this process runs in.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// `scontrol` waits while the controller is busy; this limits that time.
const DEADLINE: Duration = Duration::from_secs(30);

/// A job id in the form that `scontrol` expects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    id: String,
}

/// The result of a requeue request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    Requeued,
    /// Slurm is ending the job itself (`scancel`, the time limit, preemption) and decides whether it comes back.
    /// Contains the job's state.
    Ending(String),
    /// The error of `scontrol`, or why it could not be run.
    Failed(String),
}

impl Requeue {
    /// For the log.
    fn message(&self, id: &str) -> String {
        match self {
            Requeue::Requeued => format!("Slurm requeued job {id}"),
            Requeue::Ending(state) => format!("job {id} is not requeued: Slurm is ending it ({state})"),
            Requeue::Failed(why) => format!("cannot requeue Slurm job {id}: {why}"),
        }
    }

    /// For standard error.
    pub(in crate::clusters) fn notice(&self, id: &str) -> String {
        let message = self.message(id);
        match self {
            Requeue::Failed(_) => {
                format!("warning: {message}\n  hint: run `scontrol requeue {id}`, or submit the job again")
            }
            _ => message,
        }
    }
}

impl SlurmJob {
    /// The job of the environment `get`; `None` outside Slurm. An array task is named by its array: one of the tasks
    /// shares SLURM_JOB_ID with the array, so requeuing that would requeue all tasks.
    pub fn detect(get: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| get(name).filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()));
        let id = match (number("SLURM_ARRAY_JOB_ID"), number("SLURM_ARRAY_TASK_ID")) {
            (Some(array), Some(task)) => format!("{array}_{task}"),
            _ => number("SLURM_JOB_ID")?,
        };
        Some(Self { id })
    }

    /// Asks Slurm to requeue the job. Slurm then ends its processes, including this one, with SIGTERM and, after
    /// `KillWait`, SIGKILL. Call it once, from one process of the job, after everything is saved.
    pub(crate) fn requeue(&self) -> Requeue {
        match self.scontrol(&["--oneliner", "show", "job"]) {
            Err(words) => Requeue::Failed(words),
            Ok(shown) => match shown.split_whitespace().find_map(|w| w.strip_prefix("JobState=")) {
                // A job that Slurm is ending must not be requeued; it would be impossible to cancel.
                Some(state) if state != "RUNNING" => Requeue::Ending(state.to_owned()),
                _ => self.scontrol(&["requeue"]).map_or_else(Requeue::Failed, |_| Requeue::Requeued),
            },
        }
    }

    /// `requeue`, with a message on standard error and in the log.
    pub fn requeue_and_say_so(&self) {
        let result = self.requeue();
        let message = result.message(&self.id);
        match &result {
            Requeue::Failed(_) => tracing::warn!("{message}"),
            _ => tracing::info!("{message}"),
        }
        status!("{}", result.notice(&self.id));
    }

    /// Runs `scontrol WORDS ID` and returns its output.
    fn scontrol(&self, words: &[&str]) -> Result<String, String> {
        // Requeuing sends SIGTERM to all processes of the job; `scontrol` ignores it, to receive Slurm's answer.
        let mut command = Command::new("sh");
        command.args(["-c", "trap '' TERM; exec scontrol \"$@\"", "scontrol"]).args(words).arg(&self.id);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|e| format!("cannot start scontrol: {e}"))?;
        let pid = Pid::from_child(&child);
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(child.wait_with_output()));
        let output = match receive.recv_timeout(DEADLINE) {
            Ok(output) => output.map_err(|e| format!("scontrol: {e}"))?,
            Err(_) => {
                let _ = kill_process(pid, Signal::KILL);
                return Err(format!("scontrol did not answer within {} s", DEADLINE.as_secs()));
            }
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().replace('\n', "; ");
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false if output.stderr.is_empty() => Err(format!("scontrol failed: {}", output.status)),
            false => Err(text(&output.stderr)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(variables: &[(&str, &str)]) -> Option<String> {
        let get = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        SlurmJob::detect(&get).map(|job| job.id)
    }

    #[test]
    fn identifies_a_job_by_its_id_and_an_array_task_by_its_array() {
        assert_eq!(job(&[]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "12")]), Some("12".into()));
        let array = [("SLURM_JOB_ID", "14"), ("SLURM_ARRAY_JOB_ID", "12"), ("SLURM_ARRAY_TASK_ID", "2")];
        assert_eq!(job(&array), Some("12_2".into()));
        assert_eq!(job(&[("SLURM_JOB_ID", "--help")]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "")]), None);
    }
}
