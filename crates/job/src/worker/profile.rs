//! `--profile`: each rank records a part; at the end they become one file.

use super::handoff::Handoff;
use super::messages::warn;
use launch::logs::ALREADY_PRINTED;
use record::{Profile, host_name, profile};
use std::path::Path;

/// The recording of `--profile` on this rank.
pub fn profile_of(handoff: &Handoff) -> Option<Profile> {
    let rank = handoff.place.rank;
    handoff.job.profile.map(|steps| {
        let part = profile::part(&handoff.job.out_dir, rank);
        Profile::new(steps, rank, host_name(), part, handoff.generation > 1)
    })
}

/// Puts the parts in the run's folder together and says where they are. Call it on all ranks, when all have written theirs:
/// rank 0 does it, and where nodes have separate folders, the first rank of each node.
pub fn merge(of: &Profile, out_dir: &Path, rank: usize, local_rank: usize, world: usize) {
    if rank != 0 && (local_rank != 0 || profile::part(out_dir, 0).exists()) {
        return;
    }
    match profile::merge(out_dir, world) {
        Ok(Some((path, ranks))) => {
            tracing::info!(target: ALREADY_PRINTED, "profile of {} ranks: {}", ranks.len(), path.display());
            info!("profile: {}, for https://ui.perfetto.dev", base::display::path(&path));
        }
        // A recording that could not be written has been reported.
        Ok(None) => of.why_none().iter().for_each(|why| warn(&format!("there is no profile: {why}"))),
        Err(e) => warn(&format!(
            "the profile is left in parts in {}: {}",
            profile::folder(out_dir).display(),
            e.message
        )),
    }
}
