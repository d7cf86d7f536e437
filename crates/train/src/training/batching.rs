//! How samples are grouped into micro-batches and optimizer steps, and how the grouping changes when a run resumes with
//! another number of processes or another batch size.

use super::BatchAlgebra;
use base::display::count;
use serde::{Deserialize, Serialize};
use spec::choice;

choice! {
    /// What to do when a run resumes with another number of processes.
    OnResize:
    /// Adapt `accumulate` so that the global batch stays.
    KeepGlobalBatch = "keep-global-batch",
    /// Keep `accumulate`: the global batch changes.
    KeepLocalBatch = "keep-local-batch",
}

/// The units that a [`Position`](super::Position) counts in. Equal on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    /// Number of processes.
    pub world: usize,
    /// Samples per process and micro-batch.
    pub batch_size: usize,
    /// Micro-batches per optimizer step: the spec's, unless adapted to a changed number of processes.
    pub accumulate: usize,
    /// Samples per optimizer step to keep. Actual steps differ if the number of processes does not divide it.
    pub kept: usize,
    /// Samples of a micro-batch over all processes when this was set: with `drop_last` an epoch consists of whole units.
    pub unit: usize,
}

impl Batching {
    /// Steps of `accumulate` micro-batches on `world` processes, as the global batch to keep.
    pub fn new(world: usize, batch_size: usize, accumulate: usize) -> Self {
        let unit = world.saturating_mul(batch_size);
        Self { world, batch_size, accumulate, kept: unit.saturating_mul(accumulate), unit }
    }

    /// The same micro-batches and accumulation for a run that begins on `world` processes.
    pub fn of_world(&self, world: usize) -> Self {
        Self::new(world, self.batch_size, self.accumulate)
    }

    /// Samples of a micro-batch over all processes.
    pub fn micro_batch(&self) -> usize {
        self.world.saturating_mul(self.batch_size)
    }

    /// Samples of a full optimizer step; `usize::MAX` if they are too many to be counted.
    pub fn global_batch(&self) -> usize {
        self.micro_batch().saturating_mul(self.accumulate)
    }

    /// The sizes of an epoch of `samples`, or of the rest of one.
    pub fn algebra(&self, samples: usize, drop_last: bool) -> BatchAlgebra {
        BatchAlgebra::new(self, samples, drop_last)
    }

    /// The sizes of an epoch whose number of samples is not known yet.
    pub fn algebra_without_data(&self) -> BatchAlgebra {
        BatchAlgebra { global_batch: self.global_batch(), ..BatchAlgebra::default() }
    }

    /// This batching for a run that resumes with `world` processes. `accumulate` is the spec's. To keep the global
    /// batch, the nearest number of micro-batches is used, at least 1.
    pub fn on(&self, world: usize, accumulate: usize, on_resize: OnResize) -> Self {
        match on_resize {
            OnResize::KeepGlobalBatch => {
                let per_micro = Self { world, ..*self }.micro_batch() as u128;
                let nearest = (2 * self.kept as u128 + per_micro) / (2 * per_micro);
                Self { world, accumulate: usize::try_from(nearest).unwrap_or(usize::MAX).max(1), ..*self }
            }
            OnResize::KeepLocalBatch => Self::new(world, self.batch_size, accumulate),
        }
    }

    /// The difference from `before`, in one line; `None` if steps are composed as before.
    pub fn change_from(&self, before: &Self) -> Option<String> {
        let Self { world, batch_size, accumulate, .. } = *self;
        if (world, batch_size, accumulate) == (before.world, before.batch_size, before.accumulate) {
            return None;
        }
        let processes = match before.world == world {
            true => count(world, "process"),
            false => format!("{} instead of {}", count(world, "process"), before.world),
        };
        let micro = count(accumulate, "micro-batch");
        let (now, was) = (self.global_batch(), before.global_batch());
        let global = match now == was {
            true => format!("the global batch stays {now}"),
            false => format!("the global batch changes from {was} to {now}"),
        };
        Some(format!("{processes}, {micro} of {batch_size} samples per process and step: {global}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accumulation_keeps_the_global_batch() {
        let four = Batching::new(4, 2, 3);
        let on = |world| four.on(world, 3, OnResize::KeepGlobalBatch);
        let accumulated = [1, 2, 3, 4, 6, 12].map(|world| (on(world).accumulate, on(world).global_batch()));
        assert_eq!(accumulated, [(12, 24), (6, 24), (4, 24), (3, 24), (2, 24), (1, 24)]);
        // The nearest multiple if it does not divide; one micro-batch if a single one per process already exceeds it.
        assert_eq!((on(5).accumulate, on(5).global_batch()), (2, 20));
        assert_eq!((on(7).accumulate, on(16).accumulate), (2, 1));
        assert_eq!(four.on(1, 3, OnResize::KeepLocalBatch), Batching::new(1, 2, 3));
        // The largest values that specs may have, on many nodes.
        let most = Batching::new(1 << 16, 1 << 30, 1 << 20);
        assert_eq!(most.on(1 << 16, 1 << 20, OnResize::KeepGlobalBatch).global_batch(), usize::MAX);
    }

    #[test]
    fn describes_a_change_of_batching() {
        let four = Batching::new(4, 8, 1);
        let on = |world, rule| four.on(world, 1, rule).change_from(&four).unwrap();
        assert_eq!(
            on(1, OnResize::KeepGlobalBatch),
            "1 process instead of 4, 4 micro-batches of 8 samples per process and step: the global batch stays 32"
        );
        assert_eq!(
            on(3, OnResize::KeepLocalBatch),
            "3 processes instead of 4, 1 micro-batch of 8 samples per process and step: the global batch changes from 32 to 24"
        );
        assert_eq!(four.change_from(&four), None);
        assert_eq!(
            Batching::new(4, 4, 1).change_from(&four).unwrap(),
            "4 processes, 1 micro-batch of 4 samples per process and step: the global batch changes from 32 to 16"
        );
    }

    proptest! {
        #[test]
        fn returning_to_the_first_world_restores_its_batching(
            world in 1usize..20, batch in 1usize..20, accumulate in 1usize..9, others in prop::collection::vec(1usize..20, 0..5),
        ) {
            let first = Batching::new(world, batch, accumulate);
            let mut now = first;
            for other in others {
                now = now.on(other, accumulate, OnResize::KeepGlobalBatch);
                prop_assert_eq!(now.kept, first.kept);
                let (got, unit) = (now.global_batch().abs_diff(first.kept), other * batch);
                prop_assert!(2 * got <= unit || now.accumulate == 1);
            }
            prop_assert_eq!(now.on(world, accumulate, OnResize::KeepGlobalBatch), first);
        }
    }
}
