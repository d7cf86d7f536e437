//! The Slurm job that this process runs in: asking Slurm to start it again.

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// `scontrol` waits for a busy controller; nobody should wait for `scontrol` longer than this.
const DEADLINE: Duration = Duration::from_secs(30);

/// A job as `scontrol` names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
    id: String,
}

/// What became of a request to requeue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    Requeued,
    /// Slurm ends the job itself (`scancel`, the time limit, preemption), and knows whether it is to come back. The
    /// state that it is in.
    Ending(String),
    /// `scontrol`'s words, or why it could not be run.
    Failed(String),
}

impl SlurmJob {
    /// The job of the environment `get`; `None` outside of Slurm. A task of an array is named by its array: requeuing
    /// SLURM_JOB_ID, which one of the tasks shares with the array, would requeue all of them.
    pub fn detect(get: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name| get(name).filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()));
        let id = match (number("SLURM_ARRAY_JOB_ID"), number("SLURM_ARRAY_TASK_ID")) {
            (Some(array), Some(task)) => format!("{array}_{task}"),
            _ => number("SLURM_JOB_ID")?,
        };
        Some(Self { id })
    }

    /// Asks Slurm to put the job back into its queue. Slurm then ends what is left of it, this process too, with SIGTERM
    /// and after `KillWait` with SIGKILL. Call it once, from one process of the job, when nothing is left to be saved.
    pub fn requeue(&self) -> Requeue {
        match self.scontrol(&["--oneliner", "show", "job"]) {
            Err(words) => Requeue::Failed(words),
            Ok(shown) => match shown.split_whitespace().find_map(|w| w.strip_prefix("JobState=")) {
                // What Slurm ends must not be brought back: it would be a job that can't be cancelled.
                Some(state) if state != "RUNNING" => Requeue::Ending(state.to_owned()),
                _ => self.scontrol(&["requeue"]).map_or_else(Requeue::Failed, |_| Requeue::Requeued),
            },
        }
    }

    /// [`Self::requeue`], told on standard error.
    pub fn requeue_and_say_so(&self) {
        let id = &self.id;
        match self.requeue() {
            Requeue::Requeued => {
                tracing::info!("Slurm requeued job {id}");
                say!("Slurm requeued job {id}");
            }
            Requeue::Ending(state) => {
                tracing::info!("job {id} is {state}: not requeued");
                say!("Slurm is ending job {id} itself ({state}): it is not requeued");
            }
            Requeue::Failed(words) => {
                tracing::warn!("cannot requeue job {id}: {words}");
                say!("warning: cannot requeue Slurm job {id}: {words}");
                say!("  hint: `scontrol requeue {id}`, or the same sbatch once more, starts it again");
            }
        }
    }

    /// Runs `scontrol WORDS ID` and gives what it printed.
    fn scontrol(&self, words: &[&str]) -> Result<String, String> {
        // Requeuing sends SIGTERM to all processes of the job; `scontrol` must outlive it to hear Slurm's answer.
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
            false if output.stderr.is_empty() => Err(format!("scontrol ended with {}", output.status)),
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
    fn a_job_is_named_by_its_id_and_a_task_of_an_array_by_its_array() {
        assert_eq!(job(&[]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "12")]), Some("12".into()));
        let array = [("SLURM_JOB_ID", "14"), ("SLURM_ARRAY_JOB_ID", "12"), ("SLURM_ARRAY_TASK_ID", "2")];
        assert_eq!(job(&array), Some("12_2".into()));
        assert_eq!(job(&[("SLURM_JOB_ID", "--help")]), None);
        assert_eq!(job(&[("SLURM_JOB_ID", "")]), None);
    }
}
