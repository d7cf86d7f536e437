//! The state of the run's folder at a start, for the messages before the first step and at a stop.

use super::connect::averages_by_nccl;
use super::handoff::JobHandoff;
use super::parts::RankParts;
use crate::plan::Plan;
use checkpoint::CheckpointStore;
use collectives::Backend;
use ddp::device;
use record::history::{self, checkpoints};
use record::{Provenance, RunId, provenance};
use std::path::Path;

/// The newest checkpoint before this start.
#[derive(Clone)]
pub struct StartState {
    job: JobHandoff,
    found: Option<u64>,
}

impl StartState {
    /// Looks up the newest checkpoint that `job` would continue from.
    pub fn new(job: &JobHandoff) -> Self {
        Self { job: job.clone(), found: newest_step(job) }
    }

    /// What is saved of the run now, and the command that resumes it.
    pub fn saved(&self) -> String {
        saved_message(self.found, newest_step(&self.job), &self.job.resume)
    }
}

/// The step that restarted workers would resume from, by the checkpoint's name only: rank 0 verifies it, and falls
/// back to an older one.
pub fn newest_step(job: &JobHandoff) -> Option<u64> {
    let run = job.provenance.as_ref().map(|start| &start.run);
    // Until the run has begun, existing checkpoints are not the ones that it starts from. A process that does not
    // write to the folder does not know.
    let continues = job.resume == "auto" || run.is_none_or(|run| history::begun(&job.out_dir, run));
    let newest =
        || CheckpointStore::read_only(checkpoints(&job.out_dir)).list().ok()?.last().map(|entry| entry.step);
    continues.then(newest).flatten()
}

/// This start's provenance, for `run.json`.
pub fn provenance_of(plan: &Plan, job: &JobHandoff, launcher: &str, run: RunId) -> Provenance {
    let source_dir = Path::new(&job.spec_name).parent().filter(|p| !p.as_os_str().is_empty());
    let parts = RankParts::new(plan);
    let gathered = Provenance::gather(provenance::Start {
        name: parts.name,
        spec_hash: parts.group.plan_hash,
        source_dir: source_dir.unwrap_or(Path::new(".")),
        world: parts.world.world_size,
        devices: (0..parts.world.nproc_per_node)
            .map(|local_rank| device::of_rank(parts.device, local_rank).to_string())
            .collect(),
        launcher,
        versions: crate::versions::here(),
        backend: match parts.group.backend {
            Backend::Mpi => "mpi",
            _ if averages_by_nccl(&parts.group, parts.world.world_size, device::of_rank(parts.device, 0)) => {
                "nccl"
            }
            _ if parts.world.world_size == 1 => "solo",
            _ => "gloo",
        },
        run,
    });
    let set = parts.set().map(|value| (value.key.clone(), value.origin.to_string())).collect();
    Provenance { set, ..gathered }
}

/// What is saved of the run, and the command that resumes it. `found` is the step of the newest checkpoint before
/// this start, `newest` that of the newest one now; `resume` is this start's option.
pub(super) fn saved_message(found: Option<u64>, newest: Option<u64>, resume: &str) -> String {
    let again = match resume {
        "auto" => "the same command",
        // The same command would start over, or from elsewhere, again.
        _ => "the same command with `--resume auto`",
    };
    match newest {
        None => "no checkpoint is saved; the same command starts from the beginning".to_owned(),
        Some(step) if found == newest => {
            format!("no further checkpoint is saved; {again} resumes at step {step}")
        }
        Some(step) => format!("step {step} is saved; {again} resumes from it"),
    }
}
