//! Identifies the run that a start belongs to: a launcher repeats the same command after a failure, and a user starts a
//! new run with it.

use base::error::{Error, Result};
use serde::{Deserialize, Serialize};

/// The run of one start, as recorded in `run.json` and `.lock`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunId {
    /// The launcher's job, such as `slurm-12`, shared by all attempts; else the same as `start`.
    pub job: String,
    /// Attempt of the job, from 1.
    pub attempt: u32,
    /// The run's name from the launcher or user (`DDP_RUN_ID`, `torchrun --rdzv-id`), equal in every start; else drawn at
    /// random by each start.
    pub start: String,
}

impl RunId {
    /// A random name.
    pub fn draw() -> Result<String> {
        let mut name = [0; 6];
        getrandom::fill(&mut name).map_err(|e| Error::internal(format!("no random bytes: {e}")))?;
        Ok(data_encoding::HEXLOWER.encode(&name))
    }

    /// Whether this start repeats the run `before` rather than beginning a new one. A later attempt of the same job
    /// does; a second start within one attempt was typed by the user.
    pub fn continues(&self, before: &RunId) -> bool {
        self.start == before.start || (self.job == before.job && self.attempt > before.attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(job: &str, attempt: u32, start: &str) -> RunId {
        RunId { job: job.into(), attempt, start: start.into() }
    }

    #[test]
    fn a_start_continues_a_run_by_name_or_later_attempt() {
        let before = id("slurm-12", 1, "a");
        assert!(id("slurm-12", 2, "b").continues(&before), "requeued");
        assert!(!id("slurm-12", 1, "b").continues(&before), "typed a second time in the same job");
        assert!(!id("slurm-13", 2, "b").continues(&before), "another job");
        assert!(id("slurm-12", 1, "a").continues(&before), "started again by torchrun within the job");
        assert!(!id("b", 2, "b").continues(&id("a", 1, "a")));
    }
}
