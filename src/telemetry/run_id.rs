//! Which run a start belongs to: a launcher starts the same command again after a failure, and a user starts it anew.

use crate::comm::rendezvous::Secret;
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// The run of one start, as `run.json` and `.lock` name it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunId {
    /// The launcher's name for its job, such as `slurm-12`, which attempts share; else that of the start.
    pub job: String,
    /// Of the job, from 1.
    pub attempt: u32,
    /// What names the run by itself (`DDP_RUN_ID`, `torchrun --rdzv-id`), so that every start has it; else drawn by each start.
    pub start: String,
}

impl RunId {
    /// A name that no other start draws.
    pub fn draw() -> Result<String> {
        Ok(Secret::generate()?.to_hex()[..12].to_owned())
    }

    /// Whether this start is the run of `before`, started again, and no new one. A job's next attempt is; a second start in
    /// the same attempt was typed.
    pub fn goes_on(&self, before: &RunId) -> bool {
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
    fn a_run_is_told_by_its_name_or_by_a_later_attempt_of_its_job() {
        let before = id("slurm-12", 1, "a");
        assert!(id("slurm-12", 2, "b").goes_on(&before), "requeued");
        assert!(!id("slurm-12", 1, "b").goes_on(&before), "typed a second time in the same job");
        assert!(!id("slurm-13", 2, "b").goes_on(&before), "another job");
        assert!(id("slurm-12", 1, "a").goes_on(&before), "started again by torchrun within the job");
        assert!(!id("b", 2, "b").goes_on(&id("a", 1, "a")));
    }
}
