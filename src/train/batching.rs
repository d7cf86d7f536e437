//! How samples make up micro-batches and optimizer steps, and what becomes of that when a run goes on with another number
//! of processes, or with another batch size in its spec.

use super::BatchAlgebra;
use crate::spec::choice;
use serde::{Deserialize, Serialize};

choice! {
    /// What a run does when it goes on with another number of processes.
    OnResize:
    /// Accumulates more or fewer micro-batches, so that a step averages over as many samples as before.
    KeepGlobalBatch = "keep-global-batch",
    /// Goes on with the spec's micro-batches per step: a step averages over more or fewer samples.
    KeepLocalBatch = "keep-local-batch",
}

/// The units that a [`Position`](super::Position) counts in. Equal on all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Batching {
    pub world: usize,
    /// Samples per process and micro-batch.
    pub batch_size: usize,
    /// Micro-batches per optimizer step: the spec's, unless they make up for processes that came or went.
    pub accumulate: usize,
    /// Samples per optimizer step that the run is to keep. What steps have differs where the processes don't divide it.
    pub kept: usize,
    /// Samples of a micro-batch over all processes where that was set: with `drop_last` an epoch is made of whole ones.
    #[serde(default)]
    pub unit: usize,
}

impl Batching {
    /// Steps of `accumulate` micro-batches on `world` processes, to be kept.
    pub fn of(world: usize, batch_size: usize, accumulate: usize) -> Self {
        let unit = world * batch_size;
        Self { world, batch_size, accumulate, kept: unit * accumulate, unit }
    }

    /// Samples of a full optimizer step.
    pub fn global_batch(&self) -> usize {
        self.world * self.batch_size * self.accumulate
    }

    /// An epoch of `samples`, or what is left of one.
    pub fn algebra(&self, samples: usize, drop_last: bool) -> BatchAlgebra {
        let Self { world, batch_size, accumulate, unit, .. } = *self;
        BatchAlgebra::in_units(unit, samples, world, batch_size, accumulate, drop_last)
    }

    /// A run with this batching goes on with `world` processes. `accumulate` is the spec's. Keeping the global batch takes the
    /// number of micro-batches that comes nearest, at least 1.
    pub fn on(&self, world: usize, accumulate: usize, on_resize: OnResize) -> Self {
        let per_micro = world * self.batch_size;
        match on_resize {
            OnResize::KeepGlobalBatch => {
                let nearest = (2 * self.kept + per_micro) / (2 * per_micro);
                Self { world, accumulate: nearest.max(1), ..*self }
            }
            OnResize::KeepLocalBatch => Self::of(world, self.batch_size, accumulate),
        }
    }

    /// What is different from `before`, in one line; `None` when steps are made up as they were.
    pub fn change_from(&self, before: &Self) -> Option<String> {
        let Self { world, batch_size, accumulate, .. } = *self;
        if (world, batch_size, accumulate) == (before.world, before.batch_size, before.accumulate) {
            return None;
        }
        let count = |n: usize, one: &str, many: &str| format!("{n} {}", if n == 1 { one } else { many });
        let processes = match before.world == world {
            true => count(world, "process", "processes"),
            false => format!("{} instead of {}", count(world, "process", "processes"), before.world),
        };
        let micro = count(accumulate, "micro-batch", "micro-batches");
        let (now, was) = (self.global_batch(), before.global_batch());
        let global = match now == was {
            true => format!("keeps the global batch of {now}"),
            false => format!("changes the global batch from {was} to {now}"),
        };
        Some(format!("{processes}: a step of {micro} of {batch_size} on each {global}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn accumulation_makes_up_for_processes_that_came_or_went() {
        let four = Batching::of(4, 2, 3);
        let on = |world| four.on(world, 3, OnResize::KeepGlobalBatch);
        let accumulated = [1, 2, 3, 4, 6, 12].map(|world| (on(world).accumulate, on(world).global_batch()));
        assert_eq!(accumulated, [(12, 24), (6, 24), (4, 24), (3, 24), (2, 24), (1, 24)]);
        // The nearest where it does not divide; one where each process has more than that already.
        assert_eq!((on(5).accumulate, on(5).global_batch()), (2, 20));
        assert_eq!((on(7).accumulate, on(16).accumulate), (2, 1));
        assert_eq!(four.on(1, 3, OnResize::KeepLocalBatch), Batching::of(1, 2, 3));
    }

    #[test]
    fn the_change_is_one_line() {
        let four = Batching::of(4, 8, 1);
        let on = |world, rule| four.on(world, 1, rule).change_from(&four).unwrap();
        assert_eq!(
            on(1, OnResize::KeepGlobalBatch),
            "1 process instead of 4: a step of 4 micro-batches of 8 on each keeps the global batch of 32"
        );
        assert_eq!(
            on(3, OnResize::KeepLocalBatch),
            "3 processes instead of 4: a step of 1 micro-batch of 8 on each changes the global batch from 32 to 24"
        );
        assert_eq!(four.change_from(&four), None);
        assert_eq!(
            Batching::of(4, 4, 1).change_from(&four).unwrap(),
            "4 processes: a step of 1 micro-batch of 4 on each changes the global batch from 32 to 16"
        );
    }

    proptest! {
        #[test]
        fn the_first_world_has_its_batching_again_whatever_came_between(
            world in 1usize..20, batch in 1usize..20, accumulate in 1usize..9, others in prop::collection::vec(1usize..20, 0..5),
        ) {
            let first = Batching::of(world, batch, accumulate);
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
