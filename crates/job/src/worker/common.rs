//! What all ranks know of each other, and how often they exchange times.

use super::exchange::gathered;
use base::error::Result;
use collectives::ProcessGroup;
use record::host_name;

/// Equal on all ranks.
pub struct Common {
    /// Rank 0's: under a launcher each rank has its own command line, and a logged step has one more collective.
    pub log_every: u64,
    /// The name of each rank's host.
    pub hosts: Vec<String>,
}

impl Common {
    /// `log_every` is this rank's. A collective.
    pub fn of(log_every: u64, group: &dyn ProcessGroup) -> Result<Self> {
        let all = gathered(&(log_every, host_name()), group)?;
        let (of_ranks, hosts): (Vec<u64>, Vec<String>) = all.into_iter().unzip();
        Ok(Self { log_every: of_ranks.first().copied().unwrap_or(log_every), hosts })
    }
}
