//! Compares the replicas of the run's state. Gradients are averaged and updates are computed by every rank for itself, so parameters,
//! averaged weights and optimizer state are equal on all ranks at each step. Where they are not, memory or a processor has
//! changed bits without an error: silent data corruption. State that may differ between ranks is left out: the state of
//! communication hooks, and batch-norm statistics unless they are averaged.

use super::digests::gathered;
use super::state::TrainState;
use super::{BufferSync, Observer};
use crate::models::{Role, StateEntry};
use base::error::{Error, ErrorKind, Result};
use collectives::{ProcessGroup, Wait};
use record::{Digest, DigestGroup};
use schemars::JsonSchema;
use serde::Deserialize;
use spec::EverySteps;
use std::sync::atomic::{AtomicBool, Ordering};

/// `[distributed]`: the check of the replicas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReplicaConfig {
    /// How often all ranks compare digests of their parameters, averaged weights and optimizer state, as in `"100 steps"`, and then also
    /// before each save. They are equal on all ranks; where they are not, the run ends with 94 before it saves, names the rank, and continues
    /// from a checkpoint on which all agreed ([failures.md](failures.md#silent-data-corruption)).
    #[schemars(extend("x-changes-results" = false))]
    pub check_replicas: EverySteps,
}

/// Whether an injected fault asks for a bit of this process's parameters to change.
static FLIP: AtomicBool = AtomicBool::new(false);

/// Makes the training loop change a bit of a parameter before its next phase, without an error: silent data corruption on purpose.
pub fn flip_a_bit() {
    FLIP.store(true, Ordering::Relaxed);
}

/// Ranks whose states are not equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// After this optimizer step.
    pub step: u64,
    /// The ranks that differ from more than half of all; none if no state has a majority.
    pub ranks: Vec<usize>,
    /// The first tensor that differs: `parameter fc1.weight`.
    pub tensor: String,
    /// The digest of the whole state of each rank.
    pub digests: Vec<Digest>,
    /// The last step after which all agreed.
    pub agreed: u64,
}

impl Divergence {
    /// By the digests of each rank's tensors, and of its whole state.
    fn new(step: u64, agreed: u64, names: &[String], tensors: &[Vec<Digest>], digests: Vec<Digest>) -> Self {
        let first = (0..names.len()).find(|i| tensors.iter().any(|rank| rank[*i] != tensors[0][*i]));
        let tensor = first.map_or_else(|| "the digest itself".to_owned(), |first| names[first].clone());
        let usual = majority(&digests);
        let differs = |(_, digest): &(usize, &Digest)| usual.is_some_and(|usual| **digest != usual);
        let ranks = digests.iter().enumerate().filter(differs).map(|(rank, _)| rank).collect();
        Self { step, ranks, tensor, digests, agreed }
    }

    /// What happened, as a sentence.
    pub fn message(&self) -> String {
        let Self { step, tensor, agreed, .. } = self;
        let (world, since) = (self.digests.len(), format!("all ranks agreed after step {agreed}"));
        match &self.ranks[..] {
            [] => format!(
                "silent data corruption: after step {step} the {world} ranks have different states, {tensor} first, and no state has a \
                 majority that would show which rank is wrong ({since})"
            ),
            [rank] => format!(
                "silent data corruption on rank {rank}: after step {step} its state differs from that of the other ranks, {tensor} first ({since})"
            ),
            ranks => {
                let named: Vec<String> = ranks.iter().map(ToString::to_string).collect();
                format!(
                    "silent data corruption on ranks {}: after step {step} their states differ from that of the other ranks, {tensor} first \
                     ({since})",
                    named.join(", ")
                )
            }
        }
    }

    /// Whether `rank` may be wrong.
    fn concerns(&self, rank: usize) -> bool {
        self.ranks.is_empty() || self.ranks.contains(&rank)
    }

    fn error(&self) -> Error {
        Error::new(ErrorKind::Diverged, self.message()).hint(
            "every checkpoint is from before it: `--max-restarts`, or the same command, continues from the newest; check memory and \
             processor or GPU of the rank's host",
        )
    }
}

/// The digest that more than half of the ranks have.
fn majority(digests: &[Digest]) -> Option<Digest> {
    let count = |of: &Digest| digests.iter().filter(|digest| *digest == of).count();
    digests.iter().copied().find(|digest| 2 * count(digest) > digests.len())
}

/// Whether an injected fault asks for a bit of this process's parameters to change; it asks once.
pub(super) fn take_flip() -> bool {
    FLIP.swap(false, Ordering::Relaxed)
}

/// The check of the replicas.
#[derive(Debug)]
pub(super) struct ReplicaCheck {
    every: EverySteps,
    /// With the mean of the ranks' statistics, they are equal too.
    buffers: BufferSync,
    /// The last step after which all ranks agreed. A run begins with the same state on all ranks.
    agreed: u64,
}

impl ReplicaCheck {
    pub fn new(every: EverySteps, buffers: BufferSync, step: u64) -> Self {
        Self { every, buffers, agreed: step }
    }

    /// Whether a check is due after step number `step`.
    pub fn is_due(&self, step: u64) -> bool {
        self.every.is_due(step)
    }

    /// Whether a check is due before a save, so that no checkpoint has a state on which the ranks do not agree.
    pub fn is_due_before_save(&self) -> bool {
        !self.every.is_never()
    }

    /// Compares the replicas after step number `step`. A collective.
    ///
    /// # Errors
    /// The replicas differ, with exit code 94 on the ranks that are wrong; a failed collective or device.
    pub fn run(
        &mut self,
        step: u64,
        state: &TrainState,
        group: &dyn ProcessGroup,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if group.world_size() == 1 {
            return Ok(());
        }
        let (names, own): (Vec<String>, Vec<Digest>) = self.replica(state)?.into_iter().unzip();
        let whole = Digest::of_all(own.iter().copied());
        let digests: Vec<Digest> = gathered(&[whole], group)?.concat();
        if digests.iter().all(|digest| *digest == digests[0]) {
            self.agreed = step;
            observer.agreed(step, whole);
            return Ok(());
        }
        // All ranks see the same digests, so all come here.
        let tensors = gathered(&own, group)?;
        let found = Divergence::new(step, self.agreed, &names, &tensors, digests);
        observer.diverged(&state.position, &found);
        // No rank ends before rank 0 has recorded it.
        group.barrier(Wait::Deadline)?;
        if !found.concerns(group.rank()) {
            // Fails when a wrong rank ends, which is then the cause of all ends.
            group.barrier(Wait::Deadline)?;
        }
        Err(found.error())
    }

    /// The digests of all tensors that must be equal on all ranks, in the layout of the module, which needs no copy.
    fn replica(&self, state: &TrainState) -> Result<Vec<(String, Digest)>> {
        let equal = |entry: &StateEntry| entry.role != Role::Statistic || self.buffers == BufferSync::Mean;
        let digest = |_: &StateEntry, values: &[f32]| Digest::new(bytemuck::cast_slice(values));
        let all = state.digests(equal, digest)?;
        let named = |(group, name, digest): (DigestGroup, String, Digest)| match group {
            DigestGroup::Optimizer => (format!("optimizer state {name}"), digest),
            other => (format!("{other} {name}"), digest),
        };
        Ok(all.into_iter().map(named).collect())
    }
}

#[cfg(test)]
#[path = "replicas_tests.rs"]
mod tests;
